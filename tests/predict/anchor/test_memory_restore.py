"""A peak restored from a memory benchmark: at its own plan the measured one; what is damaged is refused with its place."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from predict.anchor.benchmark_file import load_benchmark
from predict.anchor.memory_part import memory_run
from predict.anchor.restore_memory import comm_bytes
from predict.measure.benchmark.memory_benchmark import restore
from predict.run.training_run import TrainingRun
from sampling.errors import SamplesError
from tests.predict.anchor import restored_runs
from tests.predict.anchor.memory_runs import DENSE, MIXED, artifact_of, run


@pytest.fixture(scope="module")
def dense_artifact() -> dict[str, Any]:
    return artifact_of(run())


def share_of_truth(artifact: dict[str, Any], share: float) -> Callable[[TrainingRun], dict[str, Any]]:
    """An analytic side that knows the state and a share of the activations, as many a layer in every run."""
    sizes = artifact["bytes"]

    def analytic(subject: TrainingRun) -> dict[str, Any]:
        layers = subject.model.layers / 2
        state = sizes["parameters"] + sizes["gradients"] + sizes["optimizer"]
        return {
            "state_bytes": state * layers,
            "activation_bytes": share * sizes["saved"] * layers,
            "working_bytes": 0.0,
        }

    return analytic


@pytest.mark.parametrize("share", [0.1, 0.8, 1.0, 1.3])
def test_restoring_at_the_plan_that_was_measured_gives_its_peak(share: float, dense_artifact: dict[str, Any]) -> None:
    subject = memory_run(run(), 1)
    point, upper, terms = restore(subject, dense_artifact, share_of_truth(dense_artifact, share))
    assert point == dense_artifact["bytes"]["allocated"]
    assert terms["activation_correction"] == pytest.approx(1 / share)
    assert upper == round(point + 0.05 * terms["live_tensor_excess_bytes"])


def test_restoring_keeps_what_an_allocator_holds_beside(dense_artifact: dict[str, Any]) -> None:
    artifact = copy.deepcopy(dense_artifact)
    artifact["bytes"]["reserved"] += 1_000_000
    point, upper, terms = restore(memory_run(run(), 1), artifact, share_of_truth(artifact, 1.0))
    assert terms["framework_overhead_bytes"] == 1_000_000
    assert point == artifact["bytes"]["reserved"]
    residual = terms["framework_overhead_bytes"] + terms["live_tensor_excess_bytes"]
    assert upper == round(point + 0.05 * residual)
    wider = restore(memory_run(run(), 1), artifact, share_of_truth(artifact, 1.0), margin=0.2)
    assert wider[:2] == (point, round(point + 0.2 * residual))


def test_a_target_grows_with_its_analytic_terms_alone(dense_artifact: dict[str, Any]) -> None:
    analytic = share_of_truth(dense_artifact, 0.5)
    small, large = run(), run(replace(DENSE, layers=8))
    (of_small, _, terms), (of_large, _, more) = (restore(each, dense_artifact, analytic) for each in (small, large))
    assert of_large - of_small == 2 * (analytic(small)["state_bytes"] + dense_artifact["bytes"]["saved"] * 2) / 2
    residuals = ("framework_overhead_bytes", "live_tensor_excess_bytes")
    assert [terms[name] for name in residuals] == [more[name] for name in residuals]


def test_an_analytic_sum_above_the_measured_one_is_not_lowered(dense_artifact: dict[str, Any]) -> None:
    def analytic(subject: TrainingRun) -> dict[str, float]:
        return {**share_of_truth(dense_artifact, 1.0)(subject), "working_bytes": 10e6}

    point, upper, terms = restore(memory_run(run(), 1), dense_artifact, analytic)
    assert terms["live_tensor_excess_bytes"] == 0
    assert terms["analytic_over_measured"] > 1
    assert point == upper > dense_artifact["bytes"]["allocated"]


def test_each_kind_of_layer_is_corrected_by_its_own_measure() -> None:
    subject = run(MIXED)
    artifact = artifact_of(subject)
    of_units = artifact["saved_by_unit"]

    def analytic(target: TrainingRun) -> dict[str, Any]:
        sparse = sum(kind.sparse for kind in target.model.kinds())
        units = {
            "embedding": of_units["embedding"],
            "full_dense": of_units["full_dense"] * (target.model.layers - sparse) / 2 / 2,
            "full_moe": of_units["full_moe"] * sparse / 2 * 2,
            "head": of_units["head"],
        }
        return {
            "state_bytes": 0.0,
            "activation_bytes": sum(units.values()),
            "working_bytes": 0.0,
            "activation_bytes_by_unit": units,
        }

    terms = restore(subject, artifact, analytic)[2]
    true = of_units["embedding"] + of_units["full_dense"] / 2 + of_units["full_moe"] * 1.5 + of_units["head"]
    assert terms["activation_bytes"] == pytest.approx(true)


def test_buffers_of_communicators_grow_with_the_world_up_to_a_limit() -> None:
    on_gpus = restored_runs.run()
    assert comm_bytes(on_gpus, 1) == comm_bytes(run(), 8) == 0
    assert comm_bytes(on_gpus, 8) == (96 + 2 * 8) * 2**20
    assert comm_bytes(on_gpus, 100_000) == 2**30


def _set(*keys: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def damage(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = to

    return damage


def _drop(*keys: str) -> Callable[[dict[str, Any]], None]:
    def damage(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        del content[keys[-1]]

    return damage


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        (_set("version", to=2), "memory.version: 2, but this predict reads 1"),
        (_drop("bytes"), "memory.bytes: missing"),
        (_set("bytes", to=[]), "memory.bytes: is no dict"),
        (_drop("bytes", "saved"), "memory.bytes.saved: missing"),
        (_set("bytes", "saved", to=-1), "memory.bytes.saved: -1 is too small"),
        (_set("bytes", "saved", to=1.5), "memory.bytes.saved: 1.5 is no int"),
        (_set("bytes", "saved", to=7), "memory.bytes.saved: 7 is not the sum of saved_by_unit"),
        (_set("bytes", "allocated", to=7), "memory.bytes.allocated: 7 is not the larger of the two peaks"),
        (_set("bytes", "reserved", to=7), "memory.bytes.reserved: 7 is less than"),
        (_set("bytes", "optimizer", to=2**40), "memory.bytes.allocated"),
        (_set("bytes", "extra", to=1), "memory.bytes.extra: unknown"),
        (_set("plan", "tp", to=0), "memory.plan.tp: 0 is too small"),
        (_set("batch", "seq_len", to="32"), "memory.batch.seq_len: '32' is no int"),
        (_drop("share", "topk"), "memory.share.topk: missing"),
        (_drop("saved_by_unit", "head"), "memory.saved_by_unit: needs"),
        (_set("world_size", to=True), "memory.world_size: True is no int"),
        (_drop("counter"), "memory.counter: missing"),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_a_damaged_artifact_is_refused_by_file_key_and_fix(
    damage: Callable[[dict[str, Any]], None], place: str, dense_artifact: dict[str, Any], tmp_path: Path
) -> None:
    damaged = copy.deepcopy(dense_artifact)
    damage(damaged)
    with pytest.raises(SamplesError) as refused:
        restore(run(), damaged, share_of_truth(dense_artifact, 1.0), place="bench.json")
    assert f"bench.json: {place}" in str(refused.value)
    assert "predict benchmark" in str(refused.value)
    path = tmp_path / "bench.json"
    content = restored_runs.simulated(restored_runs.run(), 1).to_json()
    path.write_text(json.dumps({**content, "memory": damaged}))
    with pytest.raises(SamplesError) as refused:
        load_benchmark(path)
    assert f"{path}: {place}" in str(refused.value)
    assert refused.value.exit_code == 3


@pytest.mark.parametrize("memory", [None, 3, [], "all"])
def test_what_is_no_artifact_is_refused(memory: Any) -> None:
    with pytest.raises(SamplesError, match=r"benchmark: memory: is no dict; benchmark the run anew"):
        restore(run(), memory, share_of_truth({"bytes": {}}, 1.0))


def test_an_artifact_of_another_model_is_refused(dense_artifact: dict[str, Any]) -> None:
    with pytest.raises(SamplesError, match=r"memory\.parameters: \d+, but the reduced model of this run has \d+"):
        restore(run(replace(DENSE, ffn=128)), dense_artifact, share_of_truth(dense_artifact, 1.0))


def test_one_file_serves_time_and_memory(dense_artifact: dict[str, Any], tmp_path: Path) -> None:
    benchmark = replace(restored_runs.simulated(restored_runs.run(), 1), memory=dense_artifact)
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(benchmark.to_json()))
    assert load_benchmark(path).memory == dense_artifact
    path.write_text(json.dumps(replace(benchmark, memory=None).to_json()))
    assert load_benchmark(path).memory is None
