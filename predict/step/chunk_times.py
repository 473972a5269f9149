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

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Value = Callable[[Sequence[Bucket]], Floats]
"""Times of buckets in µs, shape (buckets, sets)."""


def chunk_times(ranks: tuple[PricedRank, ...], placement: Placement, value: Value | None = None) -> ChunkTimes:
    """Times by rank and chunk, and of the send over each edge; the medians, or the sets that `value` gives, on a leading axis."""
    chunks, held = distinct_chunks(ranks)
    of_kinds = (value or _medians)(buckets_of(chunks)).reshape(5, len(chunks), -1)
    *tables, sends = of_kinds if value else of_kinds[..., 0]
    forward, backward, backward_input, backward_weight = (
        np.moveaxis(table[held], (0, 1), (-2, -1)) for table in tables
    )
    return ChunkTimes(
        forward=forward,
        backward=backward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        p2p=_edges(sends, held, placement),
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
    chunk."""
    by_chain = [sends[held[holders[:, 0], holders[:, 1]]] for holders in _senders(placement)]
    edges: Floats = by_chain[0] if len(by_chain) == 1 else np.max(by_chain, axis=0)
    return edges.T


@lru_cache(maxsize=KEPT)
def _senders(placement: Placement) -> list[Indices]:
    """Rank and chunk of every stage but the last, by chain, shape (stages − 1, 2)."""
    holders = placement.holders()
    return [
        np.array([holders[chain, stage] for stage in range(placement.depth - 1)], dtype=np.intp).reshape(-1, 2)
        for chain in range(placement.chain_count)
    ]
