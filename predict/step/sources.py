"""Sources: the shares of a step's work that were measured, extrapolated, transferred or analytic."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from predict.schedules.engine.order import KINDS, Order
from predict.step.priced_block import Bucket
from predict.step.priced_rank import BUCKETS, PricedChunk, PricedRank, counts_of, distinct_chunks


def step_sources(ranks: tuple[PricedRank, ...], order: Order) -> dict[str, float]:
    """Shares by source, which add up to 1; communication beside compute counts by its exposed time."""
    by_source = {"measured": 0.0, "extrapolated": 0.0, "transferred": 0.0, "analytic": 0.0}
    times: dict[Bucket, float] = defaultdict(float)
    alike = Counter(map(id, ranks))
    for rank in {id(rank): rank for rank in ranks}.values():
        count_of_rank = alike[id(rank)]
        times[rank.blocking_reduction] += count_of_rank
        times[rank.optimizer] += count_of_rank
        for bucket, exposed_us in (
            (rank.gradient_reduction, rank.exposed_reduction_us),
            (rank.parameter_all_gather, rank.exposed_all_gather_us),
        ):
            if bucket.median_us:
                times[bucket] += count_of_rank * exposed_us / bucket.median_us
    for chunk, counts in _runs_of_chunks(ranks, order):
        for name, count in zip(BUCKETS.values(), counts, strict=True):
            times[getattr(chunk, name)] += count
        times[chunk.send] += 2 * counts[KINDS.index("F")]
    for bucket, count_of_bucket in times.items():
        for repeated in bucket.blocks:
            for source, time_us in repeated.priced.by_source_us.items():
                by_source[source] += count_of_bucket * repeated.count * time_us
    kept = {name: max(0.0, time_us) for name, time_us in by_source.items()}
    total = sum(kept.values())
    return {name: time_us / total for name, time_us in kept.items()}


def _runs_of_chunks(ranks: tuple[PricedRank, ...], order: Order) -> Iterator[tuple[PricedChunk, list[int]]]:
    """The number of actions of each kind on all ranks, by distinct chunk."""
    chunks, held = distinct_chunks(ranks)
    runs = np.zeros((len(chunks), len(KINDS)), dtype=np.intp)
    np.add.at(runs, held, counts_of(order))
    yield from zip(chunks, runs.tolist(), strict=True)
