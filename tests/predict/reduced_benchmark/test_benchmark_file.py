"""Benchmarks on disk: what is written is read again, and what is damaged or of another run is refused with its place."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from predict.reduced_benchmark.benchmark_file import MemoryBenchmark, as_json, load_benchmark, load_memory_benchmark
from predict.run.training_run import TrainingRun
from sampling.errors import ConfigError, SamplesError
from sampling.hardware.cluster import load_cluster
from tests.predict.reduced_benchmark import memory_runs
from tests.predict.reduced_benchmark.priced_machines import DENSE, MOE, benchmarked, run


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_benchmark_survives_its_file(tmp_path: Path) -> None:
    subject = run(MOE, dp=4, ep=4, pp=2)
    benchmark = benchmarked(subject, 1)
    path = written(tmp_path / "bench.json", as_json(benchmark))
    assert load_benchmark(path) == benchmark
    load_benchmark(path).require_same_run(subject, path)


def test_a_plan_may_lack_what_it_did_not_say_when_the_file_was_written(tmp_path: Path) -> None:
    content = as_json(benchmarked(run(), 1))
    del content["full_plan"]["cp_method"]
    assert load_benchmark(written(tmp_path / "bench.json", content)) == benchmarked(run(), 1)


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
    ("damage", "problem"),
    [
        (_set("version", to=2), "version: 2, but this version reads 1"),
        (_drop("format"), "format: missing"),
        (_drop("precision"), "precision: missing"),
        (_set("reduced_plan", "tp", to=3), "reduced_plan.tp: 3 does not divide the 1 of full_plan"),
        (_set("full_plan", "qq", to=3), "full_plan.qq: unknown key"),
        (_set("times_us", "head", to=3), "times_us.head: 3 is not a mapping"),
        (_drop("times_us", "full_dense", "backward"), "times_us.full_dense: has no forward and backward"),
        (_set("times_us", "head", "forward", "low", to=1e9), "times_us.head.forward: low 1000000000.0, median"),
        (_set("times_us", "head", "forward", "median", to=float("nan")), "times_us.head.forward.median: nan"),
        (_set("memory", "version", to=2), "memory.version: 2, but this version reads 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_damaged_benchmark_is_refused_by_file_key_and_fix(
    damage: Damage, problem: str, memory: MemoryBenchmark, tmp_path: Path
) -> None:
    content = json.loads(json.dumps(as_json(replace(benchmarked(run(), 1), memory=memory))))
    damage(content)
    path = written(tmp_path / "bench.json", content)
    with pytest.raises(SamplesError) as refused:
        load_benchmark(path)
    assert f"{path}: {problem}" in str(refused.value)
    assert "predict benchmark" in str(refused.value)
    assert refused.value.exit_code == 3


@pytest.fixture(scope="module")
def memory() -> MemoryBenchmark:
    return memory_runs.benchmark_of(memory_runs.run())


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (_set("version", to=2), "version: 2, but this version reads 1"),
        (_drop("bytes", "saved"), "bytes.saved: missing"),
        (_set("bytes", "saved", to=7), "bytes.saved: 7 is not the sum of saved_by_unit"),
        (_set("bytes", "allocated", to=7), "bytes.allocated: 7 is not the larger of the two peaks"),
        (_set("bytes", "reserved", to=7), "bytes.reserved: 7 is less than"),
        (_set("bytes", "optimizer", to=2**40), "bytes.allocated"),
        (_set("bytes", "extra", to=1), "bytes.extra: unknown"),
        (_drop("saved_by_unit", "head"), "saved_by_unit: needs"),
        (_drop("counter"), "counter: missing"),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_a_damaged_memory_part_is_refused_alone_and_in_a_benchmark(
    damage: Damage, problem: str, memory: MemoryBenchmark, tmp_path: Path
) -> None:
    content = json.loads(json.dumps(as_json(replace(benchmarked(run(), 1), memory=memory))))
    damage(content["memory"])
    path = written(tmp_path / "bench.json", content)
    for load in (load_benchmark, load_memory_benchmark):
        with pytest.raises(SamplesError) as refused:
            load(path)
        assert f"{path}: memory.{problem}" in str(refused.value)
        assert "predict benchmark" in str(refused.value)


def test_all_faults_come_at_once(memory: MemoryBenchmark, tmp_path: Path) -> None:
    content = as_json(replace(benchmarked(run(), 1), memory=memory))
    damages = (_drop("precision"), _set("share", "seq_len", to=0), _set("memory", "bytes", "saved", to=-1))
    for damage in damages:
        damage(content)
    with pytest.raises(SamplesError) as refused:
        load_benchmark(written(tmp_path / "bench.json", content))
    assert all(place in str(refused.value) for place in ("precision", "share.seq_len", "memory.bytes.saved"))


def test_one_file_serves_time_and_memory(memory: MemoryBenchmark, tmp_path: Path) -> None:
    benchmark = replace(benchmarked(run(), 1), memory=memory)
    path = written(tmp_path / "bench.json", as_json(benchmark))
    assert load_benchmark(path) == benchmark
    assert load_memory_benchmark(path) == memory
    assert load_memory_benchmark(written(tmp_path / "memory.json", {"memory": as_json(memory)})) == memory


@pytest.mark.parametrize("part", [None, 3, [], "all"])
def test_a_file_without_a_memory_part_is_refused(part: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"bench\.json: memory: .* is not a mapping; write it with `predict memory"):
        load_memory_benchmark(written(tmp_path / "bench.json", {"memory": part}))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"a": 1, "a": 2}', "\x00"])
def test_what_is_no_benchmark_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(SamplesError, match=r"bench\.json"):
        load_benchmark(written(tmp_path / "bench.json", text))


@pytest.mark.parametrize(
    ("other", "place"),
    [
        (replace(run(), model=replace(DENSE, hidden=2048)), "model.hidden: 1024, but the run has 2048"),
        (replace(run(), model=MOE), "model.experts: null, but the run has {"),
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
        benchmarked(run(), 1).require_same_run(other, Path("bench.json"))
    assert f"bench.json: {place}" in str(refused.value)
    assert refused.value.exit_code == 3


def test_a_benchmark_without_a_kind_of_the_run_is_refused() -> None:
    benchmark = benchmarked(run(), 1)
    times_us = {unit: phases for unit, phases in benchmark.times_us.items() if unit != "full_dense"}
    with pytest.raises(SamplesError, match=r"bench\.json: times_us\.full_dense: missing"):
        replace(benchmark, times_us=times_us).require_same_run(run(), Path("bench.json"))


def test_the_name_of_a_model_is_nothing_to_it() -> None:
    benchmarked(run(), 1).require_same_run(replace(run(), model=replace(DENSE, name="copy")), Path("bench.json"))
