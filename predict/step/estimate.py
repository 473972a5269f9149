"""The composition: a run's calls → times of each stage's forward and backward → the schedule's timeline → the step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from predict.ledger.flops import mfu, tokens_per_step
from predict.schedules.engine import ChunkTimes, makespan, simulate
from predict.schedules.order import Order
from predict.schedules.registry import order as order_of
from predict.schedules.timeline import Timeline
from predict.step.breakdown import BUBBLE, DP, NOT_COMPUTE, P2P, add_up, itemise
from predict.step.costing import PriceList
from predict.step.interval import Interval, step_interval
from predict.step.stage import PricedStage, price_stages
from predict.workload.decompose import StageCalls, decompose
from predict.workload.run import TrainingRun


@dataclass(frozen=True, kw_only=True, slots=True)
class StageEstimate:
    """One pipeline rank: layers it holds, µs of one microbatch's forward and backward, and of what follows the pipeline."""

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


def estimate(run: TrainingRun, prices: PriceList, provenance: dict[str, Any]) -> StepEstimate:
    """Predict one step of `run` at `prices`; `provenance` is handed through to the result."""
    calls = decompose(run)
    stages = price_stages(calls, prices)
    order = order_of(run.plan.schedule, ranks=run.plan.pp, chunks=run.plan.vpp, microbatches=run.microbatches)
    times = chunk_times(stages)
    timeline = simulate(order, times)
    step_us = step_time_us(timeline, stages)
    return StepEstimate(
        run=run,
        step_time=step_interval(step_us, order, stages, prices.composition_error),
        tokens_per_second=tokens_per_step(run) / step_us * 1e6,
        mfu=mfu(run, step_us),
        bubble_fraction=timeline.bubble_fraction,
        breakdown_us=_breakdown(run, calls, prices, order, stages, step_us),
        sources=_sources(stages, run.microbatches),
        stages=tuple(_stage_estimate(stage, of_stage) for stage, of_stage in zip(stages, calls, strict=True)),
        timeline=timeline,
        provenance=provenance,
    )


def chunk_times(stages: tuple[PricedStage, ...]) -> ChunkTimes:
    """The engine's input: forward and whole backward of each rank's one chunk, and the slowest edge."""
    return ChunkTimes(
        forward=[[stage.forward.median_us] for stage in stages],
        backward_input=0.0,
        backward_weight=0.0,
        backward=[[stage.backward.median_us] for stage in stages],
        p2p=max(stage.send.median_us for stage in stages),
    )


def step_time_us(timeline: Timeline, stages: tuple[PricedStage, ...]) -> float:
    """When the last rank is done: its pipeline, then its gradients and its optimizer."""
    return max(float(end[-1]) + stage.after_us for end, stage in zip(timeline.end, stages, strict=True))


def _stage_estimate(stage: PricedStage, calls: StageCalls) -> StageEstimate:
    return StageEstimate(
        layers=calls.layers,
        forward_us=stage.forward.median_us,
        backward_us=stage.backward.median_us,
        gradients_us=stage.gradients.median_us,
        step_us=stage.step.median_us,
    )


def _breakdown(
    run: TrainingRun,
    calls: tuple[StageCalls, ...],
    prices: PriceList,
    order: Order,
    stages: tuple[PricedStage, ...],
    step_us: float,
) -> dict[str, float]:
    """Mean over the pipeline ranks of where the step's time goes."""
    per_rank = []
    for of_stage, stage in zip(calls, stages, strict=True):
        microbatch = itemise((*of_stage.forward, *of_stage.backward), prices)
        ledger = {name: time_us * run.microbatches for name, time_us in microbatch.items()}
        per_rank.append(add_up([ledger, {DP: stage.gradients.median_us}, itemise(of_stage.step, prices)]))
    mean = {name: time_us / len(stages) for name, time_us in add_up(per_rank).items()}
    idle_us = step_us - sum(mean.values())
    handed_over_us = _exposed_p2p(order, stages)
    return add_up([dict.fromkeys(NOT_COMPUTE, 0.0), mean, {P2P: handed_over_us, BUBBLE: idle_us - handed_over_us}])


def _exposed_p2p(order: Order, stages: tuple[PricedStage, ...]) -> float:
    """How much shorter the pipeline would be if tensors crossed its edges at once."""
    times = chunk_times(stages)
    if not times.p2p:
        return 0.0
    instant = ChunkTimes(forward=times.forward, backward_input=0.0, backward_weight=0.0, backward=times.backward)
    return makespan(order, times) - makespan(order, instant)


def _sources(stages: tuple[PricedStage, ...], microbatches: int) -> dict[str, float]:
    by_source = {"measured": 0.0, "extrapolated": 0.0, "transferred": 0.0, "analytic": 0.0}
    for stage in stages:
        for bucket, count in (
            (stage.forward, microbatches),
            (stage.backward, microbatches),
            (stage.gradients, 1),
            (stage.step, 1),
            (stage.send, 2 * microbatches),
        ):
            for unit in bucket.units:
                by_source[unit.time.source] += count * unit.total_us
    kept = {name: max(0.0, time_us) for name, time_us in by_source.items()}
    total = sum(kept.values())
    return {name: time_us / total for name, time_us in kept.items()}
