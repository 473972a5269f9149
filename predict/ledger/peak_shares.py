"""The share of the peak that products and attention reach: by the hardware or framework, at the clocks of a long run, and here."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from predict.ledger.compute import OperatorTime
from predict.prices.kernels.attention import kernel_in_words
from predict.prices.kernels.products import share_of_wide
from predict.run.execution import Execution
from predict.run.training_run import TrainingRun
from sampling.arithmetic.operator import Operator
from sampling.hardware.cluster import Gpu

KINDS = ("gemm", "attention")


@dataclass(frozen=True, kw_only=True, slots=True)
class PeakShare:
    """The kernels under one heading in one dtype, on a GPU of the mean pipeline rank."""

    heading: str
    dtype: str
    stated: float | None
    """Share of the dense peak that the largest calls reach in a short measurement; None where times rest on samples, or no file says so."""
    clocks: float
    """Time in a long run over that in a short measurement."""
    reached: float
    """Executed FLOPs over time and peak: what shapes, starts and clocks leave."""
    backward: float | None
    """Time of the backward over that of the forward; None where one of the two is missing."""
    kernel: str
    """The kernel of attention in words."""


def peak_shares(run: TrainingRun, operators: Iterable[OperatorTime]) -> tuple[PeakShare, ...]:
    """The headings of products and attention, the longest first; none on a CPU, whose products were timed."""
    if run.cluster.gpu.kind == "cpu":
        return ()
    alike: dict[tuple[str, str], list[OperatorTime]] = defaultdict(list)
    for each in operators:
        if isinstance(each.call, Operator) and each.call.KIND in KINDS and each.flops:
            alike[each.heading, each.call.compute_dtype].append(each)
    found = [_share(run, heading, dtype, members) for (heading, dtype), members in alike.items()]
    times = {key: sum(each.total_us for each in members) for key, members in alike.items()}
    return tuple(sorted(found, key=lambda one: -times[one.heading, one.dtype]))


def _share(run: TrainingRun, heading: str, dtype: str, members: list[OperatorTime]) -> PeakShare:
    gpu, execution = run.cluster.gpu, run.execution
    analytic = all(each.source == "analytic" for each in members)
    long_run = execution.clocks == "sustained" and analytic
    return PeakShare(
        heading=heading,
        dtype=dtype,
        stated=_stated(heading, dtype, gpu, execution) if analytic else None,
        clocks=gpu.sustained.get(dtype, 1.0) if long_run else 1.0,
        reached=sum(each.flops for each in members)
        / (gpu.peak_flops_per_us(dtype) * sum(each.total_us for each in members)),
        backward=_backward(members),
        kernel=_kernel(run) if heading == "attention" else "",
    )


def _kernel(run: TrainingRun) -> str:
    architecture, adds_positions = run.cluster.gpu.architecture, bool(run.model.relative_buckets)
    return kernel_in_words(run.execution.attention_kernel_on(architecture, adds_positions=adds_positions), architecture)


def _stated(heading: str, dtype: str, gpu: Gpu, execution: Execution) -> float | None:
    if heading == "attention":
        return gpu.efficiency["attention"]
    if heading != "gemm":
        return None
    return (execution.gemm_efficiency or gpu.efficiency["gemm"]) * share_of_wide(dtype, gpu.architecture)


def _backward(members: list[OperatorTime]) -> float | None:
    """The backward of calls over their forward, each by the number of times that it runs."""
    forward = sum(each.total_us for each in members if each.phase == "forward" and not each.again)
    backward = sum(each.total_us for each in members if (each.phase or "").startswith("backward"))
    return backward / forward if forward and backward else None
