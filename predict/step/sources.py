"""Sources: the shares of a step's work that were measured, extrapolated, transferred or analytic."""

from __future__ import annotations

from predict.schedules.engine.order import Order
from predict.step.priced_block import PricedBlock, total_us
from predict.step.priced_rank import BUCKETS, PricedRank, action_counts


def step_sources(ranks: tuple[PricedRank, ...], order: Order) -> dict[str, float]:
    """Shares by source, which add up to 1; communication beside compute counts by its exposed time."""
    by_source = {"measured": 0.0, "extrapolated": 0.0, "transferred": 0.0, "analytic": 0.0}
    of_blocks: dict[PricedBlock, dict[str, float]] = {}
    for rank, counts in zip(ranks, action_counts(order), strict=True):
        buckets = [(rank.blocking_reduction, 1.0), (rank.optimizer, 1.0)]
        buckets += [
            (bucket, exposed_us / bucket.median_us)
            for bucket, exposed_us in (
                (rank.gradient_reduction, rank.exposed_reduction_us),
                (rank.parameter_all_gather, rank.exposed_all_gather_us),
            )
            if bucket.median_us
        ]
        for chunk, count in zip(rank.chunks, counts, strict=True):
            buckets += [(getattr(chunk, bucket), count[kind]) for kind, bucket in BUCKETS.items()]
            buckets.append((chunk.send, 2 * count["F"]))
        for bucket, count_of_bucket in buckets:
            for repeated in bucket.blocks:
                if repeated.priced not in of_blocks:
                    of_blocks[repeated.priced] = _sources_of_block(repeated.priced)
                for source, time_us in of_blocks[repeated.priced].items():
                    by_source[source] += count_of_bucket * repeated.count * time_us
    kept = {name: max(0.0, time_us) for name, time_us in by_source.items()}
    total = sum(kept.values())
    return {name: time_us / total for name, time_us in kept.items()}


def _sources_of_block(priced: PricedBlock) -> dict[str, float]:
    """µs by source. The host's launch floor is a stated setting, which counts as analytic, unless it was sampled."""
    found: dict[str, float] = {"measured" if priced.floor_sampled else "analytic": priced.median_us - priced.busy_us}
    for unit in priced.units:
        found[unit.time.source] = found.get(unit.time.source, 0.0) + unit.total_us
    for each in priced.overlapped:
        whole_us = total_us(each.communication)
        for unit in each.communication:
            exposed = each.exposed_us / whole_us if whole_us else 0.0
            found[unit.time.source] = found.get(unit.time.source, 0.0) + exposed * unit.total_us
    return found
