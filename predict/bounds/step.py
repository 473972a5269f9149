"""The operators of a step next to their speed of light: where the headroom is, and the three models of the step's calls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from predict import one_batch
from predict.config.document import Config
from predict.ledger.compute import OperatorTime, operators_of, step_items
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from sampling.arithmetic.operator import Operator
from sampling.call import Call, Phase
from sampling.hardware.cluster import Gpu
from sampling.operators.experts import GroupedGemm
from sampling.operators.gemm import Gemm


@dataclass(frozen=True, kw_only=True, slots=True)
class CallWork:
    """µs of a call at the device's peaks: its products, all its tensors, and those tensors that outlive the step's layers."""

    compute_us: float
    memory_us: float
    lasting_us: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """µs of the three models by one rule, each no longer than the one before."""

    unfused_us: float
    fused_us: float
    fused_prefetched_us: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StepModels:
    """The models of the calls of a pipeline rank's step, without communication: one maximum of sums, and the sum of each call's."""

    documented: StepTimes
    intended: StepTimes


def work_of(call: Call, phase: Phase, gpu: Gpu, count: float) -> CallWork | None:
    """The work of `count` calls; None for communication."""
    if not isinstance(call, Operator):
        return None
    flops = call.executed_flops(phase)
    return CallWork(
        compute_us=count * (flops / gpu.peak_flops_per_us(call.compute_dtype) if flops else 0.0),
        memory_us=count * call.bytes_moved(phase) / gpu.bytes_per_us(),
        lasting_us=count * _lasting_bytes(call, phase) / gpu.bytes_per_us(),
    )


def _lasting_bytes(call: Operator, phase: Phase) -> float:
    """Bytes of weights, of their gradients and of the optimizer's state. What lies between operators stays on the chip.

    A product reads its weight in forward and for the gradient of its input, and writes the weight's gradient.
    """
    if phase == "step":
        return call.bytes_moved(phase)
    weights = _weights(call) * call.item_bytes
    return float(weights * (2 if phase in ("backward", "backward_accumulate") else 1))


def _weights(call: Operator) -> int:
    """Elements of the weight of a product; of a mixture's, those of the experts that have rows. 0 for other operators, whose
    weights are small beside."""
    if isinstance(call, Gemm):
        return call.n * call.k
    if isinstance(call, GroupedGemm):
        return min(call.groups, call.rows) * call.n * call.k
    return 0


def models_of(works: Sequence[CallWork]) -> StepModels:
    compute_us, memory_us, lasting_us = (
        sum(getattr(work, name) for work in works) for name in ("compute_us", "memory_us", "lasting_us")
    )
    fused_us = max(compute_us, lasting_us)
    return StepModels(
        documented=StepTimes(unfused_us=max(compute_us, memory_us), fused_us=fused_us, fused_prefetched_us=fused_us),
        intended=StepTimes(
            unfused_us=_one_by_one((work.compute_us, work.memory_us) for work in works),
            fused_us=_one_by_one((work.compute_us, work.lasting_us) for work in works),
            fused_prefetched_us=fused_us,
        ),
    )


def _one_by_one(pairs: Iterable[tuple[float, float]]) -> float:
    return sum(max(pair) for pair in pairs)


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


def step_speed_of_light(config: Config, overrides: Sequence[str] = ()) -> StepBounds:
    """The operators of a config's step next to the least time that the device's peaks leave them, worst ratio first. Communication, idle
    time and launches are not among them."""
    prediction = one_batch(config, overrides)
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
