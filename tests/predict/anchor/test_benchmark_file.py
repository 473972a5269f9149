"""Benchmarks on disk: what is written is read again, and what is damaged or of another run is refused with its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from predict.anchor.benchmark_file import load_benchmark, require_same
from predict.run.training_run import TrainingRun
from sampling.errors import SamplesError
from sampling.hardware.cluster import load_cluster
from tests.predict.anchor.restored_runs import DENSE, MIXED, run, simulated


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_benchmark_survives_its_file(tmp_path: Path) -> None:
    subject = run(MIXED, dp=4, ep=4, pp=2)
    benchmark = simulated(subject, 1)
    path = written(tmp_path / "bench.json", benchmark.to_json())
    assert load_benchmark(path) == benchmark
    require_same(load_benchmark(path), subject, path)


def test_a_plan_may_lack_what_it_did_not_say_when_the_file_was_written(tmp_path: Path) -> None:
    content = simulated(run(), 1).to_json()
    del content["full_plan"]["cp_method"]
    assert load_benchmark(written(tmp_path / "bench.json", content)) == simulated(run(), 1)


def test_the_file_says_what_was_timed(tmp_path: Path) -> None:
    content = simulated(run(MIXED, dp=4, ep=4, pp=2), 1).to_json()
    assert content["version"] == 1
    assert (content["full_plan"]["pp"], content["reduced_plan"]["pp"]) == (2, 1)
    assert content["share"] == {"seq_len": 2048, "experts": 4, "topk": 2}
    assert set(content["times_us"]) == {"full_dense", "full_moe", "embedding", "head"}
    assert set(content["times_us"]["full_moe"]["forward"]) == {"median", "low", "high"}
    assert content["device"] == {"name": run().cluster.gpu.name, "threads": 0}
    assert content["world_size"] == 1


Damage = Callable[[dict[str, Any]], Any]


def _set(*keys: str, to: Any) -> Damage:
    def damage(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = to

    return damage


def _drop(*keys: str) -> Damage:
    def damage(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        del content[keys[-1]]

    return damage


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        (_set("version", to=2), "version: 2"),
        (_set("version", to="1"), "version: '1'"),
        (_set("format", to="trace"), "format: 'trace'"),
        (_drop("format"), "format: None"),
        (_drop("precision"), "precision: missing"),
        (_set("world_size", to="two"), "world_size: is no int"),
        (_set("world_size", to=True), "world_size: is no int"),
        (_drop("reduced_plan", "tp"), "reduced_plan.tp: missing"),
        (_set("reduced_plan", "tp", to=0), "reduced_plan.tp: 0"),
        (_set("reduced_plan", "tp", to=-1), "reduced_plan.tp: -1"),
        (_set("reduced_plan", "tp", to=3), "reduced_plan.tp: 3 does not divide the 1 of full_plan"),
        (_set("share", "seq_len", to=0), "share.seq_len: 0"),
        (_set("full_plan", "qq", to=3), "full_plan.qq: unknown"),
        (_set("share", "seq_len", to=None), "share.seq_len: None"),
        (_set("times_us", to=[]), "times_us: is no dict"),
        (_set("times_us", "head", to=3), "times_us.head: has no forward and backward"),
        (_drop("times_us", "full_dense", "backward"), "times_us.full_dense: has no forward and backward"),
        (_set("times_us", "head", "forward", to=3.0), "times_us.head.forward: needs the numbers"),
        (_set("times_us", "head", "forward", "low", to="1"), "times_us.head.forward: needs the numbers"),
        (_set("times_us", "head", "forward", "median", to=-5.0), "times_us.head.forward: low"),
        (_set("times_us", "head", "forward", "median", to=float("nan")), "times_us.head.forward: low"),
        (_set("times_us", "head", "forward", "high", to=float("inf")), "times_us.head.forward: low"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_damaged_benchmark_is_refused_by_file_key_and_fix(damage: Damage, place: str, tmp_path: Path) -> None:
    content = json.loads(json.dumps(simulated(run(), 1).to_json()))
    damage(content)
    path = written(tmp_path / "bench.json", content)
    with pytest.raises(SamplesError) as refused:
        load_benchmark(path)
    assert f"{path}: {place}" in str(refused.value)
    assert "predict benchmark" in str(refused.value)
    assert refused.value.exit_code == 3


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"a": 1, "a": 2}', "\x00"])
def test_what_is_no_benchmark_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(SamplesError, match=r"bench\.json"):
        load_benchmark(written(tmp_path / "bench.json", text))


def test_a_missing_file_is_told_with_its_nearest(tmp_path: Path) -> None:
    written(tmp_path / "bench.json", {})
    with pytest.raises(SamplesError, match=r"bench\.jsn.*no such file.*bench\.json"):
        load_benchmark(tmp_path / "bench.jsn")


@pytest.mark.parametrize(
    ("other", "place"),
    [
        (replace(run(), model=replace(DENSE, hidden=2048)), "model.hidden: 1024, but the run has 2048"),
        (replace(run(), model=MIXED), "model.experts: null"),
        (replace(run(), precision="fp32"), "precision: 'bf16', but the run has 'fp32'"),
        (replace(run(), batch=replace(run().batch, micro=1)), "batch.micro: 2, but the run has 1"),
        (replace(run(), batch=replace(run().batch, seq_len=4096)), "batch.seq_len: 2048"),
        (
            replace(run(), cluster=load_cluster(hardware="cpu", nodes=1, gpus_per_node=1, profile="nowhere", cores=2)),
            "device.threads: 0, but the run has 2",
        ),
    ],
    ids=["hidden", "experts", "precision", "micro", "seq_len", "device"],
)
def test_a_benchmark_of_another_run_is_refused(other: TrainingRun, place: str) -> None:
    with pytest.raises(SamplesError) as refused:
        require_same(simulated(run(), 1), other, Path("bench.json"))
    assert f"bench.json: {place}" in str(refused.value)
    assert refused.value.exit_code == 3


def test_a_benchmark_without_a_kind_of_the_run_is_refused() -> None:
    benchmark = simulated(run(), 1)
    times = {unit: phases for unit, phases in benchmark.times.items() if unit != "full_dense"}
    with pytest.raises(SamplesError, match=r"bench\.json: times_us\.full_dense: missing"):
        require_same(replace(benchmark, times=times), run(), Path("bench.json"))


def test_the_name_of_a_model_is_nothing_to_it() -> None:
    require_same(simulated(run(), 1), replace(run(), model=replace(DENSE, name="copy")), Path("bench.json"))
