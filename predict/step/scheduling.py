"""Scheduling: a run's order on the times of its stages, and the choice of the fastest schedule that fits the device."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from predict.run.frameworks import recompute_refusal
from predict.run.training_run import TrainingRun
from predict.schedules import registry
from predict.schedules.compare import ScheduleOutcome, best, best_or_nearest, compare
from predict.schedules.engine.timing import Timeline, simulate
from predict.schedules.order_files import is_order_file, read_order
from predict.step.prediction import Prediction
from predict.step.priced_rank import PricedRank, chunk_times
from sampling.errors import InfeasibleError

Estimate = Callable[[TrainingRun], Prediction]
"""The path from a run to its prediction, as `predict.estimate` is."""


def schedule(run: TrainingRun, ranks: tuple[PricedRank, ...]) -> Timeline:
    """The timeline of the run's schedule; a schedule that is solved is solved for these ranks' times.

    InfeasibleError where the schedule cannot keep plan.memory_limit.
    """
    times = chunk_times(ranks, run.schedule.placement(run.plan.pp, run.plan.vpp))
    order = registry.order(
        run.schedule,
        ranks=run.plan.pp,
        chunks=run.plan.vpp,
        microbatches=run.microbatches,
        times=times,
        memory_limit=run.plan.memory_limit or None,
    )
    return simulate(order, times)


def require_memory_limit(prediction: Prediction) -> None:
    """InfeasibleError unless the schedule keeps plan.memory_limit."""
    run = prediction.run
    outcome = ScheduleOutcome(
        name=run.plan.schedule, timeline=prediction.timeline, released_by_b=run.schedule.released_by_b
    ).within(run.plan.memory_limit or None)
    if outcome.why_not:
        raise InfeasibleError(
            f"plan.schedule: {outcome.name} {outcome.why_not} of plan.memory_limit; raise it, or take another schedule or best"
        )


def with_schedule(run: TrainingRun, name: str) -> TrainingRun:
    """The run under the schedule of this name, or of the order in this file, which is read here."""
    order = read_order(Path(name)) if is_order_file(name) else None
    return replace(run, plan=replace(run.plan, schedule=name), order=order)


def compare_schedules(
    run: TrainingRun, names: Iterable[str], predict: Estimate
) -> tuple[list[ScheduleOutcome], dict[str, Prediction]]:
    """The run under each of the schedules, the shortest step first, and their predictions by name.

    A schedule is not a choice where its counts, plan.memory_limit or the device's memory (by the expected peak) rule it out.
    """
    predictions: dict[str, Prediction] = {}

    def timed(name: str) -> tuple[Timeline, float]:
        prediction = predictions[name] = predict(with_schedule(run, name))
        return prediction.timeline, prediction.median_us

    def refusal(name: str) -> str | None:
        wanted = registry.get(name)
        depth = wanted.placement(run.plan.pp, run.plan.vpp).depth
        if run.model.layers < depth:
            return f"makes {depth} stages, more than the model's {run.model.layers} layers"
        return recompute_refusal(run.execution.framework, wanted) if run.plan.recompute != "none" else None

    outcomes = compare(
        names,
        ranks=run.plan.pp,
        chunks=run.plan.vpp,
        microbatches=run.microbatches,
        timed=timed,
        refusal=refusal,
        memory_limit=run.plan.memory_limit or None,
    )
    judged = [_within_device(outcome, predictions.get(outcome.name)) for outcome in outcomes]
    return sorted(judged, key=lambda outcome: outcome.rank_key), predictions


def _within_device(outcome: ScheduleOutcome, prediction: Prediction | None) -> ScheduleOutcome:
    if prediction is None:
        return outcome
    return outcome.within_device(prediction.memory.point_bytes, prediction.memory.capacity_bytes)


def best_schedule(run: TrainingRun, predict: Estimate, *, require_fit: bool) -> Prediction:
    """The prediction of the schedule with the shortest step among those that fit the device.

    Where none does: InfeasibleError with the smallest peak and the device's capacity; without `require_fit`, the prediction of
    the schedule with that peak among those that only the device's memory rules out.
    """
    outcomes, predictions = compare_schedules(run, registry.names(), predict)
    chosen = None if require_fit else best_or_nearest(outcomes)
    return predictions[(chosen or best(outcomes)).name]
