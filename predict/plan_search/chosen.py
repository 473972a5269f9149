"""The run whose keys that are `auto` have the values with the shortest step, for commands that predict one run."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from predict.plan_search.axes import opened
from predict.plan_search.legal import legal_plans
from predict.plan_search.options import OBJECTIVES
from predict.plan_search.pricing import Workers
from predict.plan_search.search import best_plans, survey
from predict.run.plan import AUTO, BEST, Plan
from predict.run.training_run import TrainingRun
from predict.schedules.registry import names as schedule_names
from sampling.errors import InfeasibleError

DEFAULT = Plan()


def chosen_run(run: TrainingRun, estimate: Callable[[TrainingRun], Any], *, require_fit: bool) -> TrainingRun:
    """The run with the values of its automatic keys, and of the schedule `best`, that make the shortest step among those that fit; without
    any, the one that needs least memory, or InfeasibleError where the schedule has to fit."""
    automatic, is_best = run.plan.automatic, run.plan.schedule == BEST
    choices: dict[str, Any] = {f"plan.{name}": AUTO for name in automatic}
    settings: dict[str, Any] = {name: getattr(DEFAULT, name) for name in automatic}
    if is_best:
        choices["plan.schedule"], settings["schedule"] = list(schedule_names()), DEFAULT.schedule
    space = legal_plans(opened(replace(run, plan=replace(run.plan, **settings)), choices))
    if not len(space.rows):
        reason = next(iter(space.left_out.values()))
        raise InfeasibleError(f"plan.{automatic[0]}: auto has no legal value: {reason.example}")
    tries = [("time", 1.0)] if is_best and require_fit else [("time", 1.0), ("memory", float("inf"))]
    for objective, share in tries:
        found = best_plans(
            [survey(space, max_memory=share)], OBJECTIVES[objective], estimate, top=1, workers=Workers(jobs=1)
        )
        if not found.complete:
            raise KeyboardInterrupt
        if found.best:
            return found.run(found.best[0])
    raise InfeasibleError(
        f"plan.{automatic[0]}: auto has no value that fits the device's memory under any schedule; change another key of the plan"
    )
