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
from predict.step.priced_rank import PricedChunk, PricedRank, distinct_chunks
from regressors.features.arrays import Floats

Indices = NDArray[np.intp]
Value = Callable[[Sequence[Bucket]], Floats]
"""Times of buckets in µs, shape (buckets, sets)."""


def chunk_times(ranks: tuple[PricedRank, ...], placement: Placement, value: Value | None = None) -> ChunkTimes:
    """Times by rank and chunk, and of the send over each edge; the medians, or the sets that `value` gives, on a leading axis."""
    chunks, held = distinct_chunks(ranks)
    of_chunks = (value or _medians)(buckets_of(chunks)).reshape(5, len(chunks), -1).transpose(0, 2, 1)
    if not value:
        of_chunks = of_chunks[:, 0]
    forward, backward, backward_input, backward_weight = of_chunks[:4][..., held]
    return ChunkTimes(
        forward=forward,
        backward=backward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        p2p=_edges(of_chunks[4], held, placement),
    )


def buckets_of(chunks: Sequence[PricedChunk]) -> list[Bucket]:
    """The buckets of chunks, one kind after the other."""
    return [
        *(chunk.forward for chunk in chunks),
        *(chunk.backward for chunk in chunks),
        *(chunk.backward_input for chunk in chunks),
        *(chunk.backward_weight for chunk in chunks),
        *(chunk.send for chunk in chunks),
    ]


def _medians(buckets: Sequence[Bucket]) -> Floats:
    return np.array([bucket.median_us for bucket in buckets])


def _edges(sends: Floats, held: Indices, placement: Placement) -> Floats:
    """Times of the sends by edge, after any axis of sets; where two chains share an edge, the slower one. `sends` are by distinct
    chunk on the last axis."""
    by_chain = [sends[..., held[rank, chunk]] for rank, chunk in _senders(placement)]
    edges: Floats = by_chain[0] if len(by_chain) == 1 else np.max(by_chain, axis=0)
    return edges


@lru_cache(maxsize=KEPT)
def _senders(placement: Placement) -> list[Indices]:
    """Ranks and chunks of all stages but the last, by chain, shape (2, stages − 1)."""
    holders = placement.holders()
    return [
        np.array([holders[chain, stage] for stage in range(placement.depth - 1)], dtype=np.intp).reshape(-1, 2).T
        for chain in range(placement.chain_count)
    ]
