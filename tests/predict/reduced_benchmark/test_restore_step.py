"""A run reduced to few GPUs and restored: exact on machines without noise, however slow."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from predict import memory_advice
from predict.huggingface.config_json import load_model
from predict.model.spec import ModelSpec
from predict.rank.groups import groups_of
from predict.reduced_benchmark.benchmark_file import PhaseTime
from predict.reduced_benchmark.reduced_run import ranks_of, reduced, reduced_for_time
from predict.step.prediction import Prediction
from sampling.call import Phase
from sampling.errors import SamplesError
from sampling.hardware.cluster import Link
from tests.predict.reduced_benchmark.priced_machines import (
    DENSE,
    MOE,
    Machine,
    benchmarked,
    prices,
    restored,
    run,
    taken,
)
from tests.predict.workload.parallel_runs import with_advice

MODELS = Path(__file__).resolve().parents[3] / "configs" / "models"
EXACT = 1e-9


def name_of(value: object) -> str:
    return value.name if isinstance(value, ModelSpec) else str(value)


FULL: list[tuple[ModelSpec, str, dict[str, Any]]] = [
    (DENSE, "torch", {}),
    (DENSE, "torch", {"tp": 2, "sp": True}),
    (DENSE, "torch", {"tp": 2, "pp": 2}),
    (DENSE, "megatron", {"tp": 2, "pp": 2, "dp": 2}),
    (DENSE, "megatron", {"pp": 4, "schedule": "zb-h1"}),
    (MOE, "megatron", {"pp": 2}),
]
CUT: list[tuple[ModelSpec, str, dict[str, Any], int]] = [
    (DENSE, "torch", {"tp": 4, "pp": 2, "dp": 2, "zero": 1}, 1),
    (DENSE, "torch", {"tp": 4, "pp": 2, "recompute": "full"}, 2),
    (DENSE, "torch", {"pp": 2, "schedule": "best"}, 1),
    (DENSE, "megatron", {"tp": 8, "sp": True, "pp": 2, "dp": 2}, 4),
    (DENSE, "megatron", {"tp": 8, "pp": 2, "schedule": "best"}, 1),
    (DENSE, "megatron", {"tp": 2, "cp": 4, "pp": 2, "recompute": "full"}, 1),
    (DENSE, "megatron", {"dp": 4, "pp": 2, "zero": 3}, 1),
    (DENSE, "megatron", {"pp": 4, "tp": 2, "schedule": "zb-h1"}, 1),
    (MOE, "megatron", {"tp": 2, "sp": True, "pp": 2, "dp": 8, "ep": 8}, 1),
    (MOE, "megatron", {"dp": 8, "ep": 8, "recompute": "selective", "recompute_modules": "core_attn,moe_act"}, 4),
]


def same(one: Prediction, other: Prediction) -> None:
    same_times(one, other)
    for name, time_us in other.breakdown_us.items():
        assert one.breakdown_us.get(name, 0.0) == pytest.approx(time_us, rel=1e-6, abs=1e-3)


def same_times(one: Prediction, other: Prediction) -> None:
    assert one.step_time.median_us == pytest.approx(other.step_time.median_us, rel=EXACT)
    for stage, expected in zip(one.stages, other.stages, strict=True):
        assert stage.forward_us == pytest.approx(expected.forward_us, rel=EXACT)
        assert stage.backward_us == pytest.approx(expected.backward_us, rel=EXACT)


@pytest.mark.parametrize(("model", "framework", "plan"), FULL, ids=name_of)
def test_restoring_at_full_size_is_the_identity(model: ModelSpec, framework: str, plan: dict[str, Any]) -> None:
    subject = run(model, framework=framework, **plan)
    assert reduced(subject, subject.cluster.world_size) == subject
    benchmark = benchmarked(subject, subject.cluster.world_size)
    if not model.experts:
        assert benchmark.reduced_plan == subject.plan
    same(restored(subject, benchmark), taken(subject))


@pytest.mark.parametrize(("model", "framework", "plan", "gpus"), CUT, ids=name_of)
def test_what_is_reduced_comes_back(model: ModelSpec, framework: str, plan: dict[str, Any], gpus: int) -> None:
    subject = run(model, framework=framework, **plan)
    result = restored(subject, benchmarked(subject, gpus))
    same(result, taken(subject))
    assert result.sources["extrapolated"] + result.sources["measured"] > 0.3


@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize("unit", ["embedding", "full_dense", "full_moe", "head"])
def test_a_restored_step_takes_each_measured_time_as_often_as_it_runs(unit: str, phase: Phase) -> None:
    """A microsecond more in the benchmark lengthens the step by a microsecond per run of the unit."""
    microbatches, layers = 3, {"full_dense": 2, "full_moe": 6}
    subject = run(MOE, framework="no-overlap", microbatches=microbatches)
    benchmark = benchmarked(subject, 1)
    timed = benchmark.times_us[unit][phase].median
    longer = PhaseTime(median=timed + 1, low=timed + 1, high=timed + 1)
    changed = {**benchmark.times_us, unit: {**benchmark.times_us[unit], phase: longer}}
    before, after = (restored(subject, each) for each in (benchmark, replace(benchmark, times_us=changed)))
    expected_us = microbatches * layers.get(unit, 1)
    assert after.step_time.median_us - before.step_time.median_us == pytest.approx(expected_us, rel=1e-6)


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gemma2-27b", "qwen3.5-35b-a3b", "deepseek-v2"])
def test_models_of_many_kinds_come_back(name: str) -> None:
    """Kinds without a module stay simulated, what modules leave out is restored."""
    model = load_model(MODELS / f"{name}.json")
    subject = run(replace(model, layers=8, layer_kinds=model.layer_kinds[:8]), tp=2, sp=True, pp=2)
    same(restored(subject, benchmarked(subject, 1)), taken(subject))


@pytest.mark.parametrize(
    ("model", "framework", "plan"),
    [
        (DENSE, "torch", {"tp": 4, "pp": 2}),
        (DENSE, "no-overlap", {"tp": 4, "cp": 2, "cp_method": "all_gather", "pp": 2}),
        (MOE, "no-overlap", {"tp": 2, "sp": True, "dp": 4, "ep": 4}),
    ],
    ids=name_of,
)
def test_a_machine_slower_than_priced_is_restored_from_its_benchmark(
    model: ModelSpec, framework: str, plan: dict[str, Any]
) -> None:
    """The prices of the restoration know nothing of the machine: its benchmark alone tells."""
    subject, slower = run(model, framework=framework, **plan), Machine(slowdown=2.0)
    result, truth = restored(subject, benchmarked(subject, 1, slower)), taken(subject, slower)
    assert truth.step_time.median_us > 1.3 * taken(subject).step_time.median_us
    same_times(result, truth)


def test_reduction_takes_the_pipeline_then_experts_then_tensors() -> None:
    subject = run(MOE, tp=4, sp=True, pp=2, dp=4, ep=16)
    taken = [reduced(subject, gpus).plan for gpus in (32, 16, 8, 4, 2, 1)]
    assert [(plan.pp, plan.ep, plan.tp) for plan in taken] == [
        (2, 16, 4),
        (1, 16, 4),
        (1, 8, 4),
        (1, 4, 4),
        (1, 1, 2),
        (1, 1, 1),
    ]
    assert [ranks_of(plan) for plan in taken] == [32, 16, 8, 4, 2, 1]


def test_a_rank_keeps_its_experts_tokens_and_microbatches() -> None:
    subject = run(MOE, tp=2, sp=True, cp=2, pp=2, dp=4, ep=8)
    cut = reduced_for_time(subject, 1)
    assert cut.model.experts is not None
    assert cut.model.experts.count == 16 // 8
    assert cut.batch.seq_len == subject.batch.seq_len // 2
    assert cut.microbatches == subject.microbatches
    assert [kind.sparse for kind in cut.model.kinds()] == [False, False, True, True]
    assert cut.cluster.world_size == 1


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("model", [DENSE, MOE], ids=lambda model: model.name)
def test_every_plan_fits_once_reduced(model: ModelSpec, gpus: int) -> None:
    for tp in (1, 2, 8):
        for cp in (1, 2):
            for dp in (1, 2, 4):
                for ep in {1, tp * cp * dp} if model.experts else {1}:
                    subject = run(model, tp=tp, sp=tp > 1, cp=cp, dp=dp, pp=2, ep=ep, zero=int(dp * cp > 1))
                    cut = reduced_for_time(subject, gpus)
                    assert cut.cluster.world_size == ranks_of(cut.plan) <= max(gpus, 1)
                    assert cut.microbatches == subject.microbatches
                    assert groups_of(cut).tp.ranks <= gpus


def test_sends_between_stages_are_charged() -> None:
    subject = run(pp=4)
    benchmark = benchmarked(subject, 1)
    assert benchmark.reduced_plan.pp == 1
    result = restored(subject, benchmark)
    assert result.breakdown_us["p2p"] == pytest.approx(taken(subject).breakdown_us["p2p"]) and (
        result.breakdown_us["p2p"] > 0
    )
    slow = replace(subject, cluster=replace(subject.cluster, intra_node=Link(latency_us=500, gb_per_s=1)))
    assert restored(slow, benchmark).step_time.median_us > result.step_time.median_us + 3 * 500


@pytest.mark.parametrize("framework", ["torch", "no-overlap"])
def test_all_four_reductions_of_a_layer_come_back(framework: str) -> None:
    """Megatron's two forward and two backward, of B·S·H each, a layer and microbatch."""

    def layers_us(layers: int, link: Link | None) -> float:
        subject = run(replace(DENSE, layers=layers), framework=framework, tp=4)
        if link:
            subject = replace(subject, cluster=replace(subject.cluster, intra_node=link))
        (stage,) = restored(subject, benchmarked(subject, 1)).stages
        return stage.forward_us + stage.backward_us

    instant = Link(latency_us=0.0, gb_per_s=1e12)
    eight, four = (layers_us(layers, None) - layers_us(layers, instant) for layers in (8, 4))
    subject = run(tp=4)
    group = groups_of(subject).tp
    (reduction,) = prices(subject).priced(group.all_reduce(2 * 2 * 2048 * 1024))
    assert (eight - four) / 4 == pytest.approx(4 * reduction.total_us, rel=1e-3)


def test_attention_of_a_ring_comes_back_in_its_pieces() -> None:
    subject = run(cp=2)
    found = restored(subject, benchmarked(subject, 1)).breakdown_us["attention"]
    assert found == pytest.approx(taken(subject).breakdown_us["attention"], rel=1e-6)


def test_a_benchmark_serves_other_microbatches_of_the_run() -> None:
    """Nearly: the measured work is scaled by the ratio of the work as priced for the two sizes."""
    subject, slower = run(), Machine(slowdown=2.0)
    halved = replace(subject, batch=replace(subject.batch, micro=1))
    expected_us = taken(halved, slower).median_us
    assert restored(halved, benchmarked(subject, 1, slower)).median_us == pytest.approx(expected_us, rel=1e-3)


def test_a_reduced_run_keeps_the_links_of_its_machine() -> None:
    whole = run(tp=2, pp=2, dp=2)
    half = reduced(whole, 4)
    assert (half.cluster.gpus_per_node, whole.cluster.gpus_per_node) == (4, 8)
    assert half.cluster.link_in_node(2) == whole.cluster.link_in_node(2) == whole.cluster.intra_node


def test_advice_for_a_restored_step_is_restored_too() -> None:
    subject, slower = run(tp=2), Machine(slowdown=2.0)
    room = 0.9 * taken(subject).memory.point_bytes / 2**30
    small = replace(subject, cluster=replace(subject.cluster, gpu=replace(subject.cluster.gpu, memory_gib=room)))
    prediction = restored(small, benchmarked(small, 1, slower))
    advice = memory_advice(prediction)
    assert {"recompute", "smaller microbatch"} <= {each.kind for each in advice}
    for each in advice:
        assert each.step_us_before == prediction.median_us
        # the ends' launches do not slow down with the machine, the kernels that they may hide do
        assert each.step_us == pytest.approx(taken(with_advice(small, each), slower).median_us, rel=1e-3)


def test_one_benchmark_serves_other_plans_of_the_run() -> None:
    benchmark = benchmarked(run(tp=8, pp=2), 1)
    for plan in ({"tp": 2, "pp": 4}, {"dp": 4, "zero": 1}, {"cp": 2, "tp": 2}):
        subject = run(**plan)
        same(restored(subject, benchmark), taken(subject))


def test_bounds_hold_both_ways_of_restoring_what_reduction_changed() -> None:
    subject = run(tp=8, framework="no-overlap")
    slow = restored(subject, benchmarked(subject, 1, Machine(slowdown=2.0))).step_time
    near = restored(subject, benchmarked(subject, 1)).step_time
    assert slow.high_us / slow.median_us > near.high_us / near.median_us


def test_a_time_that_is_all_communication_is_refused() -> None:
    subject = run(tp=2, framework="torch")
    benchmark = benchmarked(subject, 2)
    tiny = {phase: PhaseTime(median=1.0, low=1.0, high=1.0) for phase in benchmark.times_us["full_dense"]}
    with pytest.raises(SamplesError, match=r"times_us\.full_dense\.forward: 1 µs .* --gpus 1"):
        restored(subject, replace(benchmark, times_us={**benchmark.times_us, "full_dense": tiny}))
