"""Times of each kind of action, checked and arranged for the engine's look-up."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from statistics import fmean

import numpy as np
from numpy.typing import ArrayLike

from predict.schedules.engine.program import Program
from regressors.features.arrays import Floats
from sampling.errors import ConfigError
from sampling.number_text import plain

LONGEST = 1e100
"""Longest time accepted, so that no sum of times overflows."""
COARSEST, FINEST = 10**6, 10**9
"""Largest ratio of a time to the common measure of all, and about how many ticks the largest time has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkTimes:
    """Durations of each kind of action, and of the transfer of a result to the next stage, all in one unit.

    Durations are one number for all, or of shape (ranks, chunks). `p2p` is one number for every edge that crosses
    ranks, or of shape (stages − 1,): entry s is the edge between stages s and s + 1, either way. Many sets of times at
    once are a leading axis on any of them; an axis of length 1 is repeated.
    """

    forward: ArrayLike
    backward_input: ArrayLike
    backward_weight: ArrayLike
    backward: ArrayLike | None = None
    """The whole backward (BW); the sum of its halves where it is not given."""
    p2p: ArrayLike = 0.0
    overlap_gain: float = 0.0
    """Share of the shorter half of a pair that hides behind the longer one: 0 runs them one after the other, 1 hides
    the shorter one wholly."""
    blocking: bool = False
    """The sender's rank is busy until the transfer is over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TickTimes:
    """One set of times by rank, chunk after chunk, for the schedules that are solved for them; hashable.

    In whole ticks, so that sums come out equal where they are, whatever the unit of the times was.
    """

    ranks: int
    chunks: int
    forward: tuple[int, ...]
    """Indexed by rank · chunks + chunk, like the other two."""
    backward_input: tuple[int, ...]
    backward_weight: tuple[int, ...]
    p2p: tuple[int, ...]
    """Indexed by s, the edge between stages s and s + 1."""

    def evened(self) -> TickTimes:
        """The same with each kind's mean time for all stages."""
        return replace(
            self,
            forward=_evened(self.forward),
            backward_input=_evened(self.backward_input),
            backward_weight=_evened(self.backward_weight),
            p2p=_evened(self.p2p),
        )

    def chunk_times(self) -> ChunkTimes:
        shape = (self.ranks, self.chunks)
        forward, backward_input, backward_weight = (
            np.reshape(table, shape) for table in (self.forward, self.backward_input, self.backward_weight)
        )
        return ChunkTimes(
            forward=forward, backward_input=backward_input, backward_weight=backward_weight, p2p=np.array(self.p2p)
        )


def _evened(table: tuple[int, ...]) -> tuple[int, ...]:
    return (round(fmean(table)),) * len(table)


def in_ticks(times: ChunkTimes, *, ranks: int, chunks: int, depth: int) -> TickTimes:
    """One set of times in ticks. ConfigError for another shape or a time below 0."""
    shape = (ranks, chunks)
    tables = [
        _flat("forward", times.forward, shape),
        _flat("backward_input", times.backward_input, shape),
        _flat("backward_weight", times.backward_weight, shape),
        _flat("p2p", times.p2p, (depth - 1,)),
    ]
    forward, backward_input, backward_weight, p2p = _in_ticks(tables)
    return TickTimes(
        ranks=ranks,
        chunks=chunks,
        forward=forward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        p2p=p2p,
    )


def _in_ticks(tables: Sequence[Sequence[float]]) -> list[tuple[int, ...]]:
    tick = _tick(set(chain.from_iterable(tables)))
    return [tuple(round(time / tick) for time in table) for table in tables]


def _tick(times: Collection[float]) -> float:
    """About a billionth of the largest time, and a part of what all are multiples of, if they are of anything so large.

    It scales with the times, so that whole numbers of it do not depend on their unit.
    """
    largest = max(times)
    finest = largest / FINEST
    if finest == 0.0:
        return 1.0
    common = reduce(lambda one, other: _common_measure(one, other, finest), sorted(times))
    count = round(largest / common)
    return largest / (count * (FINEST // count)) if count <= COARSEST else finest


def _common_measure(one: float, other: float, rounding: float) -> float:
    """Euclid's algorithm, where a remainder of at most `rounding` counts as zero."""
    while other > rounding:
        one, other = other, abs(one - other * round(one / other))
    return one


def cell_durations(program: Program, times: ChunkTimes) -> list[float]:
    """Duration of each cell of the program under one set of times. ConfigError for another shape or a time below 0."""
    shape = (program.ranks, program.chunks)
    _check_gain(times.overlap_gain)
    forward = _flat("forward", times.forward, shape)
    backward_input = _flat("backward_input", times.backward_input, shape)
    backward_weight = _flat("backward_weight", times.backward_weight, shape)
    if times.backward is None:
        backward = [b + w for b, w in zip(backward_input, backward_weight, strict=True)]
    else:
        backward = _flat("backward", times.backward, shape)
    single = forward + backward_input + backward_weight + backward
    if not program.paired:
        return single
    pairs = _pairs(np.array([forward]).T, np.array([backward]).T, program, times.overlap_gain)
    return single + [float(time) for part in pairs for time in part.ravel()]


def edge_delays(program: Program, p2p: ArrayLike) -> list[float]:
    """Time of a transfer over each edge of the program."""
    return [0.0, *_flat("p2p", p2p, (program.depth - 1,))]


def costs_of(program: Program, times: ChunkTimes) -> tuple[list[float], list[float], list[float]]:
    """The delay of each edge, the duration of each cell, and the time for which it keeps its rank busy.

    With blocking sends the sender's rank is busy until the transfer is over: the p2p moves from the edge to the sender. Both results of a
    pair are then sent one after the other, and have arrived when the second has.
    """
    delays, durations = edge_delays(program, times.p2p), cell_durations(program, times)
    if not times.blocking:
        return delays, durations, durations
    busy: list[float] = (np.array(durations) + sending(program, np.array(delays))).tolist()
    return [0.0] * len(delays), durations, busy


def cost_table(program: Program, times: ChunkTimes) -> Floats:
    """The edges' delays with the cells' durations below, one column per set of times.

    With blocking sends the delays move into the durations of the senders.
    """
    shape = (program.ranks, program.chunks)
    _check_gain(times.overlap_gain)
    p2p = _columns("p2p", times.p2p, (program.depth - 1,))
    forward = _columns("forward", times.forward, shape)
    backward_input = _columns("backward_input", times.backward_input, shape)
    backward_weight = _columns("backward_weight", times.backward_weight, shape)
    given = {"p2p": p2p, "forward": forward, "backward_input": backward_input, "backward_weight": backward_weight}
    if times.backward is None:
        backward = backward_input + backward_weight
    else:
        backward = given["backward"] = _columns("backward", times.backward, shape)
    parts = [np.zeros((1, 1)), p2p, forward, backward_input, backward_weight, backward]
    sets = max(part.shape[1] for part in parts)
    if any(part.shape[1] not in (1, sets) for part in parts):
        lengths = sorted({part.shape[1] for part in parts})
        raise ConfigError(f"times: leading axes of lengths {lengths}; give each of the times {sets} sets, or one")
    if program.paired:
        parts += _pairs(forward, backward, program, times.overlap_gain)
    table = np.empty((sum(map(len, parts)), sets))
    first = 0
    for part in parts:
        table[first : first + len(part)] = part
        first += len(part)
    if not (table.min() >= 0 and table.max() <= LONGEST):  # a comparison with NaN is False
        _refuse_bad_times(given)
    if times.blocking:
        delays, durations = table[: program.depth], table[program.depth :]
        durations += sending(program, delays)
        delays[:] = 0.0
    return table


def sending(program: Program, delays: Floats) -> Floats:
    """Time of the transfers of each cell's results; delays are by edge, and may have an axis of sets of times."""
    total: Floats = delays[program.sends].sum(axis=1)
    return total


def _check_gain(gain: float) -> None:
    if not 0 <= gain <= 1:
        raise ConfigError(f"overlap_gain: {gain} is not a share; give a number from 0 to 1")


def _pairs(forward: Floats, backward: Floats, program: Program, gain: float) -> tuple[Floats, Floats, Floats]:
    """The cells of pairs, one column per set of times: the row before, the forwards, and what the backwards add to them."""
    ahead = np.repeat(forward.reshape(program.ranks, 1, program.chunks, -1), program.chunks, axis=1)
    behind = backward.reshape(program.ranks, program.chunks, 1, -1)
    added = behind - gain * np.minimum(ahead, behind)
    return np.zeros((1, 1)), forward, added.reshape(program.ranks * program.chunks**2, -1)


def _flat(name: str, value: ArrayLike, shape: tuple[int, ...]) -> list[float]:
    # One number for all is the common case, and ten times as fast without an array.
    if isinstance(value, (int, float)):
        if not 0 <= value <= LONGEST:
            _refuse_bad_times({name: np.array([value])})
        return [value] * math.prod(shape)
    array = np.asarray(value, dtype=float)
    if array.shape not in ((), shape):
        raise ConfigError(f"{name}: times of shape {array.shape}; give one number or an array of shape {shape}")
    flat: list[float] = (array if array.shape else np.broadcast_to(array, shape)).ravel().tolist()
    if not all(0 <= time <= LONGEST for time in flat):
        _refuse_bad_times({name: array})
    return flat


def _columns(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """The value as (cells or edges, sets), not checked; 1 set where it has no axis of them."""
    array = np.asarray(value, dtype=float)
    sets = len(array) if array.ndim > len(shape) else 1
    try:
        full = array if array.shape == (sets, *shape) else np.broadcast_to(array, (sets, *shape))
    except ValueError:
        raise ConfigError(
            f"{name}: times of shape {array.shape}; give one number or an array of shape {shape}, or (sets, *{shape})"
        ) from None
    return full.reshape(sets, math.prod(shape)).T


def _refuse_bad_times(named: Mapping[str, Floats]) -> None:
    """ConfigError for the first time that is below 0, too long or not a number."""
    for name, times in named.items():
        bad = times[~((times >= 0) & (times <= LONGEST))]
        if bad.size:
            raise ConfigError(f"{name}: {float(bad[0])} is not a time; give a number from 0 to {plain(LONGEST)}")
