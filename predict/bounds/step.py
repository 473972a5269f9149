"""The operators of a step beside their speed of light: where the headroom is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from predict.bounds.call_work import CallWork, StepModels, models_of, work_of
from predict.ledger.compute import OperatorTime, operators_of
from predict.ledger.work import step_items
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from sampling.call import Phase


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorBound:
    """An operator of a step in one phase, all its shapes and calls together, on the mean pipeline rank: µs as predicted, and the
    least that a device of these peaks needs."""

    name: str
    phase: Phase
    count: float
    predicted_us: float
    bound_us: float
    compute_us: float
    """The part of the bound that is of shapes which their products limit; memory limits the others."""

    @property
    def ratio(self) -> float | None:
        """Predicted ÷ bound; None where its tensors fit in the cache, so that nothing bounds it."""
        return self.predicted_us / self.bound_us if self.bound_us else None

    @property
    def headroom_us(self) -> float:
        """Predicted time beyond the bound."""
        return self.predicted_us - self.bound_us

    @property
    def bottleneck(self) -> str:
        if not self.bound_us:
            return "none"
        return "compute" if self.compute_us >= self.bound_us / 2 else "memory"


@dataclass(frozen=True, kw_only=True)
class StepBounds:
    """The speed of light of a step on its mean pipeline rank."""

    prediction: Prediction
    operators: tuple[OperatorBound, ...]
    """Worst ratio first; those that nothing bounds last."""
    models: StepModels

    @property
    def run(self) -> TrainingRun:
        return self.prediction.run

    @property
    def bound_us(self) -> float:
        """The bound of all operators one after the other."""
        return sum(each.bound_us for each in self.operators)

    @property
    def predicted_us(self) -> float:
        return sum(each.predicted_us for each in self.operators)


def step_bounds(prediction: Prediction) -> StepBounds:
    """The operators of a predicted step and their bounds. Communication, idle time and launches are not among them."""
    gpu = prediction.run.cluster.gpu.at_its_fastest()
    items = (each for each in step_items(prediction) if not each.is_message)
    groups: dict[tuple[str, Phase], list[tuple[OperatorTime, CallWork]]] = {}
    for each in operators_of(prediction.run, items):
        if each.call is not None and each.phase is not None:
            work = work_of(each.call, each.phase, gpu, each.count)
            if work is not None:
                groups.setdefault((each.heading, each.phase), []).append((each, work))
    operators = [_together(name, phase, members) for (name, phase), members in groups.items()]
    return StepBounds(
        prediction=prediction,
        operators=tuple(sorted(operators, key=lambda each: (each.ratio is None, -(each.ratio or 0.0)))),
        models=models_of([work for members in groups.values() for _, work in members]),
    )


def _together(name: str, phase: Phase, members: list[tuple[OperatorTime, CallWork]]) -> OperatorBound:
    return OperatorBound(
        name=name,
        phase=phase,
        count=sum(each.count for each, _ in members),
        predicted_us=sum(each.total_us for each, _ in members),
        bound_us=sum(each.bound_us or 0.0 for each, _ in members),
        compute_us=sum(each.bound_us or 0.0 for each, work in members if _is_limited_by_products(each, work)),
    )


def _is_limited_by_products(operator: OperatorTime, work: CallWork) -> bool:
    return bool(work.compute_us) and math.isclose(operator.bound_us or 0.0, work.compute_us)
