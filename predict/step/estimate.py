"""The composition: a run's calls → times of each stage's forward and backward → the schedule's timeline → the step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from predict.ledger.flops import mfu, tokens_per_step
from predict.prices.price_list import PriceList
from predict.run.training_run import TrainingRun
from predict.schedules import registry
from predict.schedules.compare import Outcome
from predict.schedules.engine import simulate
from predict.schedules.order import CHUNK, KIND, KINDS, Kind, Order
from predict.schedules.timeline import Timeline
from predict.step.breakdown import (
    BUBBLE,
    DP,
    NOT_COMPUTE,
    OPTIMIZER,
    OVERHEAD,
    P2P,
    STRAGGLERS,
    add_up,
    itemise,
    itemise_bucket,
)
from predict.step.chunk_times import chunk_times
from predict.step.composition_error import composition_error
from predict.step.interval import Interval, step_interval
from predict.step.priced_block import PricedBlock, total_us
from predict.step.priced_rank import PricedRank, price_ranks, step_time_us, with_windows
from predict.step.schedule_choice import settled
from predict.step.stragglers import stragglers_factor
from predict.workload.decompose import RankCalls, decompose
from sampling.errors import InfeasibleError


@dataclass(frozen=True, kw_only=True, slots=True)
class StageEstimate:
    """One pipeline rank: layers it holds, µs of one microbatch's forward and backward over all its chunks, and of what
    follows the pipeline."""

    layers: int
    forward_us: float
    backward_us: float
    gradients_us: float
    step_us: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StepEstimate:
    """What is predicted of one training step.

    `breakdown_us` adds up to the step time, averaged over the pipeline ranks; `sources` are the shares of the step's
    work that were measured, extrapolated, transferred or analytic, and add up to 1.
    """

    run: TrainingRun
    step_time: Interval
    tokens_per_second: float
    mfu: float
    bubble_fraction: float
    breakdown_us: dict[str, float]
    sources: dict[str, float]
    stages: tuple[StageEstimate, ...]
    timeline: Timeline
    provenance: dict[str, Any]

    @property
    def tokens_per_second_per_gpu(self) -> float:
        return self.tokens_per_second / self.run.cluster.world_size


Adjust = Callable[[tuple[RankCalls, ...]], tuple[RankCalls, ...]]
"""What replaces calls of a run before they are priced."""


def estimate(
    run: TrainingRun, prices: PriceList, provenance: dict[str, Any], *, adjust: Adjust | None = None
) -> StepEstimate:
    """Predict one step of `run` at `prices`; `provenance` is handed through to the result.

    InfeasibleError where no schedule, or not the one asked for, keeps the plan's memory limit.
    """
    run = settled(run, prices)
    calls = decompose(run)
    if adjust:
        calls = adjust(calls)
    ranks = price_ranks(run, calls, prices)
    order = order_of_run(run, ranks)
    timeline = simulate(order, chunk_times(ranks, order.placement), blocking=run.blocks_on_sends)
    _keep_memory_limit(run, timeline)
    ranks = with_windows(ranks, timeline)
    step_us = _whole_step_us(run, step_time_us(timeline, ranks))
    counts = action_counts(order)
    sources = _sources(ranks, counts)
    return StepEstimate(
        run=run,
        step_time=step_interval(
            step_us,
            order,
            ranks,
            composition_error(run, prices.profile_error, sources),
            blocking=run.blocks_on_sends,
        ),
        tokens_per_second=tokens_per_step(run) / step_us * 1e6,
        mfu=mfu(run, step_us),
        bubble_fraction=timeline.bubble_fraction,
        breakdown_us=_breakdown(run, calls, prices, order, counts, ranks, step_us),
        sources=sources,
        stages=tuple(_stage_estimate(rank, of_rank) for rank, of_rank in zip(ranks, calls, strict=True)),
        timeline=timeline,
        provenance=provenance,
    )


def median_step_us(run: TrainingRun, prices: PriceList) -> float:
    """The median of `estimate` alone, for those who compare many plans. InfeasibleError as there."""
    run = settled(run, prices)
    ranks = price_ranks(run, decompose(run), prices)
    order = order_of_run(run, ranks)
    timeline = simulate(order, chunk_times(ranks, order.placement), blocking=run.blocks_on_sends)
    _keep_memory_limit(run, timeline)
    return _whole_step_us(run, step_time_us(timeline, ranks))


def _whole_step_us(run: TrainingRun, last_rank_us: float) -> float:
    """From the end of the last rank, all being alike, to that of the step."""
    return last_rank_us * stragglers_factor(run) + run.execution.step_overhead_us


def order_of_run(run: TrainingRun, ranks: tuple[PricedRank, ...]) -> Order:
    """The run's schedule, solved for its stage times where it is one to be solved."""
    schedule = registry.get(run.plan.schedule)
    return registry.order(
        run.plan.schedule,
        ranks=run.plan.pp,
        chunks=run.plan.vpp,
        microbatches=run.microbatches,
        times=chunk_times(ranks, schedule.placement(run.plan.pp, run.plan.vpp)),
        memory_limit=run.plan.memory_limit or None,
    )


def _keep_memory_limit(run: TrainingRun, timeline: Timeline) -> None:
    schedule = registry.get(run.plan.schedule)
    outcome = Outcome(name=schedule.name, timeline=timeline, released_by_b=schedule.released_by_b)
    why_not = outcome.within(run.plan.memory_limit or None).why_not
    if why_not:
        raise InfeasibleError(
            f"plan.schedule: {schedule.name} {why_not} of plan.memory_limit; raise it, or take another schedule or best"
        )


Counts = list[list[dict[Kind, int]]]
"""By rank and chunk, how many actions of each kind an order has."""
BUCKETS: dict[Kind, str] = {"F": "forward", "B": "backward_input", "W": "backward_weight", "BW": "backward"}


def action_counts(order: Order) -> Counts:
    counts = []
    for row in order.rows:
        found = np.bincount(row[:, CHUNK] * len(KINDS) + row[:, KIND], minlength=order.chunks * len(KINDS))
        by_chunk = found.reshape(order.chunks, len(KINDS)).tolist()
        counts.append([dict(zip(KINDS, of_chunk, strict=True)) for of_chunk in by_chunk])
    return counts


def _stage_estimate(rank: PricedRank, calls: RankCalls) -> StageEstimate:
    return StageEstimate(
        layers=calls.layers,
        forward_us=sum(chunk.forward.median_us for chunk in rank.chunks),
        backward_us=sum(chunk.backward.median_us for chunk in rank.chunks),
        gradients_us=rank.exposed_us,
        step_us=rank.optimizer.median_us,
    )


def _breakdown(
    run: TrainingRun,
    calls: tuple[RankCalls, ...],
    prices: PriceList,
    order: Order,
    counts: Counts,
    ranks: tuple[PricedRank, ...],
    step_us: float,
) -> dict[str, float]:
    """Mean over the pipeline ranks of where the step's time goes."""
    per_rank = []
    for of_rank, rank, of_chunks in zip(calls, ranks, counts, strict=True):
        ledgers = [{DP: rank.exposed_us}, _step_ledger(run, of_rank, rank, prices)]
        for priced, done in zip(rank.chunks, of_chunks, strict=True):
            for kind, bucket in BUCKETS.items():
                if done[kind]:
                    ledger = itemise_bucket(getattr(priced, bucket), prices)
                    ledgers.append({name: time_us * done[kind] for name, time_us in ledger.items()})
        per_rank.append(add_up(ledgers))
    mean = {name: time_us / len(ranks) for name, time_us in add_up(per_rank).items()}
    overhead_us = float(run.execution.step_overhead_us)
    waited_us = (step_us - overhead_us) * (1 - 1 / stragglers_factor(run))
    beside = {STRAGGLERS: waited_us, OVERHEAD: overhead_us}
    beside = {name: time_us for name, time_us in beside.items() if time_us}
    idle_us = step_us - sum(mean.values()) - waited_us - overhead_us
    handed_over_us = _exposed_p2p(run, order, ranks)
    idle = {P2P: handed_over_us, BUBBLE: idle_us - handed_over_us}
    return add_up([dict.fromkeys(NOT_COMPUTE, 0.0), mean, beside, idle])


def _step_ledger(run: TrainingRun, calls: RankCalls, rank: PricedRank, prices: PriceList) -> dict[str, float]:
    """Clipping and copies belong to the optimizer where they are calls of their own."""
    return itemise(calls.end.optimizer, prices) if run.execution.whole_layers else {OPTIMIZER: rank.optimizer.median_us}


def _exposed_p2p(run: TrainingRun, order: Order, ranks: tuple[PricedRank, ...]) -> float:
    """How much shorter the step would be if tensors crossed the pipeline's edges at once."""
    times = chunk_times(ranks, order.placement)
    step_us, at_once_us = (
        step_time_us(simulate(order, each, blocking=run.blocks_on_sends), ranks)
        for each in (times, replace(times, p2p=0.0))
    )
    return step_us - at_once_us


def _sources(ranks: tuple[PricedRank, ...], counts: Counts) -> dict[str, float]:
    """Shares of the work by source; communication beside other work counts by what of it is exposed."""
    by_source = {"measured": 0.0, "extrapolated": 0.0, "transferred": 0.0, "analytic": 0.0}
    for rank, of_chunks in zip(ranks, counts, strict=True):
        buckets = [(rank.blocking_reduction, 1.0), (rank.optimizer, 1.0)]
        buckets += [
            (bucket, exposed_us / bucket.median_us)
            for bucket, exposed_us in (
                (rank.gradient_reduction, rank.exposed_reduction_us),
                (rank.parameter_all_gather, rank.exposed_all_gather_us),
            )
            if bucket.median_us
        ]
        for chunk, done in zip(rank.chunks, of_chunks, strict=True):
            buckets += [(getattr(chunk, bucket), done[kind]) for kind, bucket in BUCKETS.items()]
            buckets.append((chunk.send, 2 * done["F"]))
        for bucket, count in buckets:
            for part in bucket.parts:
                for source, time_us in _sources_of_block(part.priced).items():
                    by_source[source] += count * part.count * time_us
    kept = {name: max(0.0, time_us) for name, time_us in by_source.items()}
    total = sum(kept.values())
    return {name: time_us / total for name, time_us in kept.items()}


def _sources_of_block(priced: PricedBlock) -> dict[str, float]:
    """µs by source. The host's floor is a stated setting, no sample."""
    found: dict[str, float] = {"analytic": priced.median_us - priced.busy_us}
    for unit in priced.units:
        found[unit.time.source] = found.get(unit.time.source, 0.0) + unit.total_us
    for each in priced.overlapped:
        whole_us = total_us(each.communication)
        for unit in each.communication:
            exposed = each.exposed_us / whole_us if whole_us else 0.0
            found[unit.time.source] = found.get(unit.time.source, 0.0) + exposed * unit.total_us
    return found
