"""The turns of a rank's chunks in the interleaved schedules: every g microbatches."""

from __future__ import annotations

import numpy as np

from predict.schedules.engine.positions import Indices


def round_size(ranks: int, microbatches: int) -> int:
    """g: the ranks, as in Megatron-LM, where they divide the microbatches; else as torch has it, the microbatches
    divided by max(1, microbatches // ranks), so that all rounds are equal."""
    return microbatches // round_count(ranks, microbatches)


def round_count(ranks: int, microbatches: int) -> int:
    return max(1, microbatches // ranks)


def whole_rounds(ranks: int, chunks: int, microbatches: int) -> str | None:
    """`supports` of the interleaved schedules."""
    rounds = round_count(ranks, microbatches)
    if microbatches % rounds == 0:
        return None
    nearest = [count for count in _neighbours(ranks, microbatches) if count]
    return (
        f"runs microbatches in equal rounds, and {microbatches} microbatches on {ranks} ranks make {rounds} unequal ones; "
        f"the nearest counts that fit are {' and '.join(map(str, nearest))}"
    )


def _neighbours(ranks: int, microbatches: int) -> tuple[int, int]:
    """Multiples of the ranks below and above; between them more may do, but these always do."""
    below = microbatches // ranks * ranks
    return below, below + ranks


def chunk_turns(chunks: int, microbatches: int, size: int) -> tuple[Indices, Indices]:
    """Microbatch and chunk of each forward of a rank in turn."""
    step = np.arange(microbatches * chunks)
    return step // (size * chunks) * size + step % size, step // size % chunks
