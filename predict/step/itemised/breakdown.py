"""Breakdown: where the step's time goes, as a ledger of headings, which are those of its items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from predict.prices.price_list import Prices
from predict.run.training_run import TrainingRun
from predict.schedules.engine.order import Order
from predict.schedules.engine.timing import simulate
from predict.step.chunk_times import chunk_times
from predict.step.itemised.items import OTHER, TP, Item, items_of_block, items_of_call
from predict.step.priced_block import Bucket, PricedBlock
from predict.step.priced_rank import BUCKETS, PricedRank, action_counts, step_time_us, with_windows
from predict.step.stragglers import stragglers_factor
from predict.workload.decompose import RankCalls
from sampling.arithmetic.composite import add_terms
from sampling.call import Counted

P2P, DP, BUBBLE, OPTIMIZER = "p2p", "dp_exposed", "pp_bubble", "optimizer"
STRAGGLERS, OVERHEAD = "stragglers", "step_overhead"
NOT_COMPUTE = (TP, P2P, DP, BUBBLE, OPTIMIZER, OTHER)


def step_breakdown(
    run: TrainingRun,
    calls: tuple[RankCalls, ...],
    prices: Prices,
    order: Order,
    ranks: tuple[PricedRank, ...],
    step_us: float,
) -> dict[str, float]:
    """µs by heading, the mean over the pipeline ranks; idle time that nothing else explains is the pipeline's bubble."""
    per_rank = []
    ledgers_of = BlockLedgers(prices)
    for of_rank, rank, counts in zip(calls, ranks, action_counts(order), strict=True):
        ledgers = [{DP: rank.exposed_us}, _optimizer_ledger(run, of_rank, rank, prices)]
        for chunk, count in zip(rank.chunks, counts, strict=True):
            for kind, bucket in BUCKETS.items():
                if count[kind]:
                    ledger = ledgers_of.bucket(getattr(chunk, bucket))
                    ledgers.append({name: time_us * count[kind] for name, time_us in ledger.items()})
        per_rank.append(add_up(ledgers))
    mean = {name: time_us / len(ranks) for name, time_us in add_up(per_rank).items()}
    overhead_us = float(run.execution.step_overhead_us)
    waited_us = (step_us - overhead_us) * (1 - 1 / stragglers_factor(run))
    beside = {name: time_us for name, time_us in {STRAGGLERS: waited_us, OVERHEAD: overhead_us}.items() if time_us}
    idle_us = step_us - sum(mean.values()) - waited_us - overhead_us
    p2p_us = exposed_p2p_us(run, order, ranks)
    idle = {P2P: p2p_us, BUBBLE: idle_us - p2p_us}
    return add_up([dict.fromkeys(NOT_COMPUTE, 0.0), mean, beside, idle])


def _optimizer_ledger(run: TrainingRun, calls: RankCalls, rank: PricedRank, prices: Prices) -> dict[str, float]:
    """Whole layers' copies are calls of their own; elsewhere clipping and copies count as the optimizer's."""
    return itemise(calls.end.optimizer, prices) if run.execution.whole_layers else {OPTIMIZER: rank.optimizer.median_us}


def exposed_p2p_us(run: TrainingRun, order: Order, ranks: tuple[PricedRank, ...]) -> float:
    """The time by which the step would be shorter if tensors crossed the pipeline's edges at once."""
    times = chunk_times(ranks, order.placement)
    with_sends, without = (
        simulate(order, each, blocking=run.blocks_on_sends) for each in (times, replace(times, p2p=0.0))
    )
    return step_time_us(with_sends, ranks) - step_time_us(without, with_windows(ranks, without))


def itemise(counted: Iterable[Counted], prices: Prices) -> dict[str, float]:
    """µs by heading; the sum equals the calls' priced total."""
    return by_heading(item for one in counted for item in items_of_call(one, prices))


def by_heading(items: Iterable[Item]) -> dict[str, float]:
    return add_up({item.heading: item.time_us} for item in items)


@dataclass(frozen=True, slots=True)
class BlockLedgers:
    """Itemises priced blocks, each once: the layers of one kind share theirs on all ranks."""

    prices: Prices
    _known: dict[PricedBlock, dict[str, float]] = field(default_factory=dict)

    def bucket(self, bucket: Bucket) -> dict[str, float]:
        """µs by heading; the sum equals the bucket's median."""
        return add_up(
            {name: repeated.count * time_us for name, time_us in self._block(repeated.priced).items()}
            for repeated in bucket.blocks
        )

    def _block(self, priced: PricedBlock) -> dict[str, float]:
        if priced not in self._known:
            self._known[priced] = _itemise_block(priced, self.prices)
        return self._known[priced]


def _itemise_block(priced: PricedBlock, prices: Prices) -> dict[str, float]:
    if priced.block.heading:
        return {priced.block.heading: priced.median_us}
    return by_heading(items_of_block(priced, prices))


def add_up(ledgers: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Heading-wise sum."""
    return add_terms(*ledgers)
