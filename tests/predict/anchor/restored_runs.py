"""Runs to reduce and restore, and benchmarks written from the prices themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from predict import estimate
from predict.anchor.benchmark_file import Benchmark, Timed, benchmark_of
from predict.anchor.reduced_run import reduced, timeable
from predict.anchor.unit_costs import unit_costs
from predict.model.layer_kinds import LayerKind
from predict.model.parts.mixture import Experts
from predict.model.spec import ModelSpec
from predict.prices.analytic import SpeedOfLight
from predict.prices.price_list import PriceList
from predict.run.execution import Execution
from predict.run.plan import Batch, Plan
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from regressors.bank.times import Times
from sampling.call import Call, Phase
from sampling.collectives.kinds import Collective
from sampling.hardware.cluster import Cluster, load_cluster
from sampling.operators.streaming import Stream

DENSE = ModelSpec(
    name="little",
    layers=8,
    hidden=1024,
    heads=16,
    kv_heads=8,
    head_dim=64,
    ffn=3072,
    vocab=16384,
    gated=True,
    norm="rms",
    rope=True,
    attention_bias=False,
    mlp_bias=False,
    tied=False,
    max_positions=0,
)
MIXED = replace(
    DENSE,
    name="mixed",
    layer_kinds=(LayerKind(),) * 2 + (LayerKind(sparse=True),) * 6,
    experts=Experts(count=16, topk=2, ffn=768, shared_ffn=768),
)
FRAMEWORKS = {
    "torch": Execution(),
    "megatron": Execution(framework="megatron-core", overlap_tp="backward", launch_floor_us=60),
    "bare": Execution(framework="megatron-core", overlap_tp="none"),
}


def run(model: ModelSpec = DENSE, *, framework: str = "megatron", microbatches: int = 4, **plan: Any) -> TrainingRun:
    """On as many H100s as the plan has ranks, eight a node."""
    chosen = Plan(**plan)
    world = chosen.tp * chosen.pp * chosen.cp * chosen.dp
    per_node = min(world, 8)
    return TrainingRun(
        name="test",
        model=model,
        cluster=load_cluster(hardware="h100-sxm", nodes=world // per_node, gpus_per_node=per_node, profile="nowhere"),
        plan=chosen,
        batch=Batch(global_=microbatches * 2 * chosen.dp, micro=2, seq_len=2048),
        precision="bf16",
        execution=FRAMEWORKS[framework],
    )


class Slower(SpeedOfLight):
    """Every kernel of a layer takes `factor` times as long; communication and the sums of gradients, which no layer's
    benchmark times, do not."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def times(self, calls: Sequence[tuple[Call, Phase]], cluster: Cluster) -> list[Times]:
        return [
            time if isinstance(call, Collective | Stream) else _scaled(time, self.factor)
            for (call, _), time in zip(calls, super().times(calls, cluster), strict=True)
        ]


def _scaled(time: Times, factor: float) -> Times:
    return replace(time, median_us=time.median_us * factor, low_us=time.low_us * factor, high_us=time.high_us * factor)


def prices(subject: TrainingRun, factor: float = 1.0) -> PriceList:
    return PriceList([Slower(factor)], subject.cluster, profile_error=0.05)


def simulated(subject: TrainingRun, gpus: int, factor: float = 1.0) -> Benchmark:
    """What a benchmark on a machine without noise, `factor` times as slow as priced, would hold."""
    cut = timeable(reduced(subject, gpus))
    benchmark = benchmark_of(subject, cut, {}, {}, world_size=cut.plan.tp)
    # the phases of a reduced run that is told by the benchmark, as restoring sees it
    costs = unit_costs(benchmark.reduced_run(subject), prices(subject, factor))
    times = {
        unit: {
            phase: Timed(median_us=cost.total_us, low_us=cost.total_us, high_us=cost.total_us)
            for phase, cost in phases.items()
        }
        for unit, phases in costs.items()
    }
    return replace(benchmark, times=times)


def direct(subject: TrainingRun, factor: float = 1.0) -> Prediction:
    return estimate(subject, prices=prices(subject, factor))


def restored(subject: TrainingRun, benchmark: Benchmark) -> Prediction:
    return estimate(subject, prices=prices(subject), benchmark=benchmark)
