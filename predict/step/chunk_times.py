"""Chunk times: the schedule engine's input, made of priced chunks; one set of times, or many at once for the interval."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from predict.schedules.engine.costs import ChunkTimes
from predict.schedules.engine.order import Placement
from predict.step.priced_block import Bucket
from predict.step.priced_rank import PricedRank

Floats = NDArray[np.float64]
Value = Callable[[Bucket], Floats]
"""Times of a bucket in µs, shape (sets,)."""


def chunk_times(ranks: tuple[PricedRank, ...], placement: Placement, value: Value | None = None) -> ChunkTimes:
    """Times by rank and chunk, and of the send over each edge; the medians, or the sets that `value` gives, on a leading axis."""
    of = value or _median

    def table(bucket_of: str) -> Floats:
        return np.moveaxis(
            np.array([[of(getattr(chunk, bucket_of)) for chunk in rank.chunks] for rank in ranks]), -1, 0
        )

    sets = slice(None) if value else 0
    return ChunkTimes(
        forward=table("forward")[sets],
        backward_input=table("backward_input")[sets],
        backward_weight=table("backward_weight")[sets],
        backward=table("backward")[sets],
        p2p=_edges(ranks, placement, of)[sets],
    )


def _median(bucket: Bucket) -> Floats:
    return np.array([bucket.median_us])


def _edges(ranks: tuple[PricedRank, ...], placement: Placement, of: Value) -> Floats:
    """Times of the sends, shape (sets, stages − 1); where two chains share an edge, the slower one."""
    sends = [
        [of(ranks[rank].chunks[chunk].send) for rank, chunk in holders]
        for holders in _holders_by_stage(placement)[: placement.depth - 1]
    ]
    sets = len(of(ranks[0].optimizer))
    edges = np.array([np.max(of_edge, axis=0) for of_edge in sends]).reshape(-1, sets)
    return edges.T


def _holders_by_stage(placement: Placement) -> list[list[tuple[int, int]]]:
    found: list[list[tuple[int, int]]] = [[] for _ in range(placement.depth)]
    for (_, stage), holder in placement.holders().items():
        found[stage].append(holder)
    return found
