"""Machines whose every time is a price: what a benchmark measures on one, and what a run really takes there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from predict import estimate
from predict.layers.mixture import Mixture
from predict.model.spec import LayerKind, ModelSpec
from predict.prices.open import SpeedOfLight
from predict.prices.price_list import PriceList
from predict.reduced_benchmark.benchmark_file import Benchmark, PhaseTime, benchmark_of
from predict.reduced_benchmark.reduced_run import reduced_for_time
from predict.run.execution import Execution
from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction, StageEstimate
from predict.workload.whole_layers import EMBEDDING, HEAD
from regressors.bank.times import Times
from sampling.call import Call, Phase
from sampling.collectives.kinds import Collective
from sampling.hardware.cluster import Cluster
from sampling.operators.memory_bound import Stream
from tests import tiny_runs
from tests.tiny_runs import tiny_run

DENSE = replace(
    tiny_runs.LLAMA,
    layers=8,
    hidden=1024,
    heads=16,
    kv_heads=8,
    head_dim=64,
    ffn=3072,
    vocab=16384,
)
MOE = replace(
    DENSE,
    name="moe-like",
    layer_kinds=(LayerKind(),) * 2 + (LayerKind(sparse=True),) * 6,
    experts=Mixture(count=16, topk=2, ffn=768, shared_ffn=768),
)
EXECUTIONS = {
    "torch": Execution(),
    "megatron": Execution(framework="megatron-core", overlap_tp="backward", launch_floor_us=60),
    "no-overlap": Execution(framework="megatron-core", overlap_tp="none"),
}


def run(model: ModelSpec = DENSE, *, framework: str = "megatron", microbatches: int = 4, **plan: Any) -> TrainingRun:
    """A run of 2 · 2048 tokens a microbatch on H100s."""
    batch = (microbatches * 2 * Plan(**plan).dp, 2, 2048)
    execution = EXECUTIONS[framework]
    return tiny_run(model, hardware="h100-sxm", batch=batch, precision="bf16", execution=execution, **plan)


@dataclass(frozen=True)
class Machine(SpeedOfLight):
    """A layer's kernels take `slowdown` times as long as priced. What no benchmark of layers times (communication, sums of
    gradients, the step of the optimizer) takes as long as priced."""

    slowdown: float = 1.0

    def times(self, calls: Sequence[tuple[Call, Phase]], cluster: Cluster) -> list[Times]:
        return [
            time if isinstance(call, Collective | Stream) or phase == "step" else _times(time, self.slowdown)
            for (call, phase), time in zip(calls, super().times(calls, cluster), strict=True)
        ]


def _times(time: Times, factor: float) -> Times:
    return replace(time, median_us=time.median_us * factor, low_us=time.low_us * factor, high_us=time.high_us * factor)


AS_PRICED = Machine()


def prices(subject: TrainingRun, machine: Machine = AS_PRICED) -> PriceList:
    return PriceList([machine], subject.cluster, profile_error=0.05)


def taken(subject: TrainingRun, machine: Machine = AS_PRICED) -> Prediction:
    """The step that the run takes on a machine."""
    return estimate(subject, prices=prices(subject, machine))


def restored(subject: TrainingRun, benchmark: Benchmark) -> Prediction:
    """The step as restored from a benchmark at prices that know nothing of the machine."""
    return estimate(subject, prices=prices(subject), benchmark=benchmark)


def benchmarked(subject: TrainingRun, gpus: int, machine: Machine = AS_PRICED) -> Benchmark:
    """The benchmark of a run on a machine without noise. Each unit's times are differences between the stages of whole steps
    of the reduced run, so that none of the code that restores has a part in them."""
    reduced = reduced_for_time(subject, gpus)
    forward = _units_us(reduced, 1, "forward", machine)
    backward, mean_of_two = (_units_us(reduced, microbatches, "backward", machine) for microbatches in (1, 2))
    times_us: dict[str, dict[Phase, PhaseTime]] = {
        unit: {
            "forward": _exactly(forward[unit]),
            "backward": _exactly(backward[unit]),
            "backward_accumulate": _exactly(2 * mean_of_two[unit] - backward[unit]),
        }
        for unit in forward
    }
    return benchmark_of(subject, reduced, times_us, {}, world_size=reduced.plan.tp)


def _exactly(time_us: float) -> PhaseTime:
    return PhaseTime(median=time_us, low=time_us, high=time_us)


def _units_us(reduced: TrainingRun, microbatches: int, phase: str, machine: Machine) -> Mapping[str, float]:
    """µs of each unit in one microbatch: of the kinds by one layer more of each, of the two ends by their sum on one stage
    and their difference between two stages."""
    kinds = reduced.model.kinds()

    def stages_us(layers: tuple[LayerKind, ...], pp: int = 1) -> list[float]:
        model = replace(reduced.model, layers=len(layers), layer_kinds=layers)
        plan = replace(reduced.plan, pp=pp, schedule="1f1b")
        batch = replace(reduced.batch, global_=microbatches * reduced.batch.micro * plan.dp)
        cluster = replace(reduced.cluster, nodes=pp)
        stages: tuple[StageEstimate, ...] = taken(
            replace(reduced, model=model, plan=plan, batch=batch, cluster=cluster), machine
        ).stages
        return [getattr(stage, f"{phase}_us") for stage in stages]

    (whole_us,) = stages_us(kinds)
    found = {kind.name: stages_us((*kinds, kind))[0] - whole_us for kind in dict.fromkeys(kinds)}
    first_us, last_us = stages_us((kinds[0], kinds[0]), pp=2)
    ends_us = whole_us - sum(found[kind.name] for kind in kinds)
    return {
        **found,
        EMBEDDING: (ends_us + first_us - last_us) / 2,
        HEAD: (ends_us - first_us + last_us) / 2,
    }
