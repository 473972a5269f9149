"""Floor of a plan's memory: the peak of its estimate does not lie below it.

A rank holds its state throughout, and, just before its first backward, what the forwards so far have kept. Their number is
known of 1F1B, interleaved 1F1B and GPipe; of the other schedules one microbatch counts. The working set of the action in
progress, buffers and communicators come on top.
"""

from __future__ import annotations

import numpy as np

from predict.memory.buffers import slack_of
from predict.memory.profiles import memory_profile_of
from predict.plan_search.floors.structures import Structure, structures
from predict.plan_search.floors.time_floor import ROUNDING, microbatches_of
from predict.plan_search.floors.unit_memory import kept_bytes, state_bytes
from predict.plan_search.space.legal import Space
from predict.schedules.building.interleaving import chunk_turns, round_size
from regressors.features.arrays import Floats


def state_floors(space: Space) -> Floats:
    """Bytes per GPU of the state alone, on the rank that holds most of it."""
    state = state_bytes(space)
    held = np.zeros(len(space.rows))
    for structure, rows in structures(space):
        held[rows] = (state.bytes[state.of_row[rows]] @ structure.units.sum(axis=1).T).max(axis=1)
    return _reserved(space, held)


def memory_floors(space: Space) -> Floats:
    """Bytes per GPU that each legal plan needs at least, on the rank that needs most."""
    state, kept, microbatches = state_bytes(space), kept_bytes(space), microbatches_of(space)
    held = np.zeros(len(space.rows))
    for structure, rows in structures(space):
        for count in np.unique(microbatches[rows]).tolist():
            own = rows[microbatches[rows] == count]
            live = (structure.units * live_microbatches(structure, count)[:, :, None]).sum(axis=1)
            of_ranks = state.bytes[state.of_row[own]] @ structure.units.sum(axis=1).T
            of_ranks += kept.bytes[kept.of_row[own]] @ live.T
            held[own] = of_ranks.max(axis=1)
    return _reserved(space, held)


def _reserved(space: Space, held: Floats) -> Floats:
    """The bytes with the allocator's slack, where that falls on the state too."""
    base = space.question.base
    profile = memory_profile_of(base)
    slack = slack_of(base, profile)[0] if profile.fragmentation is None else 0.0
    return held * (1 + slack) * (1 - ROUNDING)


def live_microbatches(structure: Structure, microbatches: int) -> Floats:
    """Microbatches whose activations each chunk holds at one moment before its rank's first backward, shape (ranks, chunks)."""
    ranks, chunks, _ = structure.units.shape
    name = structure.run.plan.schedule
    after = np.arange(ranks)[::-1, None]  # ranks that follow
    if name == "1f1b":
        return np.minimum(microbatches, after + 1).astype(float)
    if name == "afab":
        return np.full((ranks, chunks), float(microbatches))
    if name == "interleaved-1f1b":
        size = round_size(ranks, microbatches)
        turns = chunk_turns(chunks, microbatches, size)[1]
        ahead = np.minimum((chunks - 1) * size + 2 * after.ravel() + 1, len(turns))
        return np.array([np.bincount(turns[:count], minlength=chunks) for count in ahead.tolist()], dtype=float)
    live = np.zeros((ranks, chunks))
    # the chunk with the fewest layers of the rank, whichever one the schedule turns to first
    live[np.arange(ranks), structure.units.sum(axis=2).argmin(axis=1)] = 1.0
    return live
