"""One run under many schedules: each laid out, priced and timed as the estimate would, then compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from predict.prices.price_list import PriceList
from predict.run.plan import BEST
from predict.run.training_run import TrainingRun
from predict.schedules import registry
from predict.schedules.compare import Outcome, best, compare
from predict.schedules.costs import ChunkTimes
from predict.schedules.timeline import Timeline
from predict.step.chunk_times import chunk_times
from predict.step.priced_rank import price_ranks, step_time_us
from predict.workload.decompose import decompose


def compare_schedules(
    run: TrainingRun,
    prices: PriceList,
    names: Iterable[str],
    *,
    memory_limit: int | None = None,
    blocking: bool = False,
) -> list[Outcome]:
    """The run's schedule replaced by each of the names, the one with the shortest whole step first."""

    priced = {}

    def times(name: str) -> ChunkTimes:
        named = with_schedule(run, name)
        ranks = priced[name] = price_ranks(named, decompose(named), prices)
        return chunk_times(ranks, registry.get(name).placement(run.plan.pp, run.plan.vpp))

    def cost(name: str, timeline: Timeline) -> float:
        return step_time_us(timeline, priced[name])

    def refusal(name: str) -> str | None:
        wanted = registry.get(name)
        depth = wanted.placement(run.plan.pp, run.plan.vpp).depth
        if run.model.layers < depth:
            return f"makes {depth} stages, more than the model's {run.model.layers} layers"
        return wanted.recompute_refusal if run.plan.recompute != "none" else None

    return compare(
        names,
        ranks=run.plan.pp,
        chunks=run.plan.vpp,
        microbatches=run.microbatches,
        times=times,
        cost=cost,
        refusal=refusal,
        memory_limit=memory_limit,
        blocking=blocking,
    )


def with_schedule(run: TrainingRun, name: str) -> TrainingRun:
    return replace(run, plan=replace(run.plan, schedule=name))


def settled(run: TrainingRun, prices: PriceList) -> TrainingRun:
    """The run with its schedule chosen, where its plan leaves that open. InfeasibleError where none can run it."""
    if run.plan.schedule != BEST:
        return run
    outcomes = compare_schedules(run, prices, registry.names(), memory_limit=run.plan.memory_limit or None)
    return with_schedule(run, best(outcomes).name)
