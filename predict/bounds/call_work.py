"""The three models of a step's calls: unfused, fused, fused and prefetched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
