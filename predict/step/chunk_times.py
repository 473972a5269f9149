"""Chunk times: the schedule engine's input, made of priced chunks; one set of times, or many at once for the interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from predict.schedules.engine.costs import ChunkTimes
from predict.schedules.engine.order import Placement
from predict.schedules.engine.program import KEPT
from predict.step.priced_block import Bucket
from predict.step.priced_rank import PricedRank

Floats = NDArray[np.float64]
Value = Callable[[Sequence[Bucket]], Floats]
"""Times of buckets in µs, shape (buckets, sets)."""


def chunk_times(ranks: tuple[PricedRank, ...], placement: Placement, value: Value | None = None) -> ChunkTimes:
    """Times by rank and chunk, and of the send over each edge; the medians, or the sets that `value` gives, on a leading axis."""
    of = value or _medians
    sets = slice(None) if value else 0

    def table(bucket_of: str) -> Floats:
        times = of([getattr(chunk, bucket_of) for rank in ranks for chunk in rank.chunks])
        return times.T.reshape(-1, len(ranks), len(placement.chains))[sets]

    return ChunkTimes(
        forward=table("forward"),
        backward_input=table("backward_input"),
        backward_weight=table("backward_weight"),
        backward=table("backward"),
        p2p=_edges(ranks, placement, of)[sets],
    )


def _medians(buckets: Sequence[Bucket]) -> Floats:
    return np.array([[bucket.median_us] for bucket in buckets]).reshape(-1, 1)


def _edges(ranks: tuple[PricedRank, ...], placement: Placement, of: Value) -> Floats:
    """Times of the sends, shape (sets, stages − 1); where two chains share an edge, the slower one."""
    by_chain = [of([ranks[rank].chunks[chunk].send for rank, chunk in holders]) for holders in _senders(placement)]
    edges: Floats = np.max(by_chain, axis=0)
    return edges.T


@lru_cache(maxsize=KEPT)
def _senders(placement: Placement) -> list[list[tuple[int, int]]]:
    """Rank and chunk of every stage but the last, by chain."""
    holders = placement.holders()
    return [[holders[chain, stage] for stage in range(placement.depth - 1)] for chain in range(placement.chain_count)]
