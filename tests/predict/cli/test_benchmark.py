"""`predict benchmark` and what rests on it, as their user runs them."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from predict.cli import main
from predict.measurement import benchmark
from predict.measurement.benchmark import benchmark as benchmark_layers
from predict.reduced_benchmark.benchmark_file import load_benchmark
from sampling.errors import UserError
from sampling.timing.timer import TimerSettings
from tests.predict.cli.benchmarked_config import MODEL, config
from tests.predict.command import Command

QUICK = TimerSettings(least_repeats=3, most_repeats=3, seconds=0.0, most_batches=1, attempts=1)
EXPERTS = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory, warm_python: Path) -> tuple[str, str]:
    """A run and its benchmark."""
    folder = tmp_path_factory.mktemp("timed")
    path = config(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(warm_python))
        patch.setattr("predict.cli.benchmark.benchmark", partial(benchmark_layers, settings=QUICK))
        assert main(["benchmark", path, "--gpus", "1", "--output", str(folder / "bench.json")]) == 0
    return path, str(folder / "bench.json")


def step_us(command: pytest.CaptureFixture[str], *arguments: str) -> float:
    result: float = command.json("one-batch", *arguments)["step_time_us"]["median"]
    return result


def test_layers_are_timed_in_all_phases(timed: tuple[str, str]) -> None:
    benchmark = load_benchmark(Path(timed[1]))
    assert set(benchmark.times_us) == {"full_dense", "embedding", "head"}
    assert set(benchmark.times_us["full_dense"]) >= {"forward", "backward", "backward_accumulate", "backward_weight"}
    assert (benchmark.full_plan.pp, benchmark.reduced_plan.pp, benchmark.world_size) == (2, 1, 1)
    assert benchmark.times_us["full_dense"]["forward"].median > benchmark.times_us["embedding"]["forward"].median
    assert benchmark.provenance["versions"]["torch"] == torch.__version__
    assert benchmark.memory is not None
    assert set(benchmark.memory.saved_by_unit) == set(benchmark.times_us)


def test_a_step_is_built_of_timed_layers(timed: tuple[str, str], command: Command) -> None:
    path, bench = timed
    result = command.json("one-batch", path, "--benchmark", bench)
    assert result["sources"]["measured"] > 0.3
    assert result["provenance"]["benchmark"]["world_size"] == 1
    layer = load_benchmark(Path(bench)).times_us["full_dense"]
    assert result["stages"][0]["forward_us"] == pytest.approx(2 * layer["forward"].median, rel=0.2)
    assert "benchmark: whole layers of run timed at tp 1" in command.text("one-batch", path, "--benchmark", bench)


def test_both_modes_stand_side_by_side_and_may_be_named(timed: tuple[str, str], command: Command) -> None:
    path, bench = timed
    asked = ["one-batch", path, "--benchmark", bench, "--profiling-mode"]
    both = command.json(*asked, "both")
    assert set(both) == {"version", "benchmark", "simulate"}
    assert both["benchmark"]["step_time_us"]["median"] == step_us(command, path, "--benchmark", bench)
    assert both["simulate"]["step_time_us"]["median"] == step_us(command, path)
    for mode in ("benchmark", "simulate"):
        assert command.json(*asked, mode)["step_time_us"] == both[mode]["step_time_us"]
    text = command.text(*asked, "both")
    assert all(word in text for word in ("benchmark", "simulate", "ratio", "step time", "pp_bubble"))


@pytest.mark.parametrize("with_benchmark", [False, True])
@pytest.mark.parametrize("nodes", [1, 8])
def test_more_nodes_are_the_plan_with_as_many_replicas(
    nodes: int, with_benchmark: bool, timed: tuple[str, str], command: Command
) -> None:
    path, bench = timed
    options = ["--benchmark", bench] if with_benchmark else []
    plain = ["--set", f"cluster.nodes={nodes}", "--set", f"plan.dp={nodes}"]
    assert step_us(command, path, "--target-nodes", str(nodes), *options) == step_us(command, path, *plain, *options)


def test_the_pipeline_is_laid_out_anew_for_fewer_microbatches(timed: tuple[str, str], command: Command) -> None:
    """Its bubble grows, which the time times old over new replicas would miss."""
    results = [command.json("one-batch", timed[0], "--target-nodes", nodes) for nodes in ("2", "8")]
    two, eight = (result["bubble_fraction"] for result in results)
    assert eight > 1.5 * two
    assert results[1]["step_time_us"]["median"] > results[0]["step_time_us"]["median"] / 4


def test_ranks_that_do_not_divide_are_refused(tmp_path: Path, command: Command) -> None:
    path = config(tmp_path, plan={"pp": 4, "dp": 1})
    assert "6 ranks are not a multiple of tp · pp · cp = 4; give 2 or 4 or 8" in command.refused(
        "one-batch", path, "--target-nodes", "3"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "fragments"),
    [
        (["one-batch", "RUN", "--benchmark", "BENCH", "--set", "batch.micro=1"], 3, ["BENCH: batch.micro: 2"]),
        (["one-batch", "RUN", "--benchmark", "BENCH", "--set", "precision=bf16"], 3, ["BENCH: precision: 'fp32'"]),
        (["one-batch", "RUN", "--benchmark", "BENCH", "--set", "cluster.cores=8"], 3, ["device.threads: 1"]),
        (["one-batch", "RUN", "--benchmark", "BENCH", "--set", "model.hidden_size=128"], 3, ["model.hidden: 64"]),
        (["one-batch", "RUN", "--benchmark", "BENCH", "--require-measured"], 3, ["does not cover this run"]),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_fix(
    arguments: list[str],
    code: int,
    fragments: list[str],
    timed: tuple[str, str],
    command: Command,
) -> None:
    names = dict(zip(("RUN", "BENCH"), timed, strict=True))
    captured = command.run(*(names.get(argument, argument) for argument in arguments), code=code)
    assert captured.out == ""
    for fragment in fragments:
        assert fragment.replace("BENCH", timed[1]) in captured.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_device_that_is_not_at_hand_is_not_timed(tmp_path: Path, command: Command) -> None:
    machines = {"hardware": "h100-sxm", "nodes": 1, "gpus_per_node": 4, "profile": "nowhere"}
    assert "this machine has CPU core" in command.refused(
        "benchmark", config(tmp_path, cluster=machines, precision="bf16"), "--gpus", "1"
    )


@pytest.fixture
def without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spares a test of times the launch that counts memory."""

    def refuse(*_: Any, **__: Any) -> None:
        raise UserError("not counted here")

    monkeypatch.setattr(benchmark, "run_memory_benchmark", refuse)


@pytest.mark.usefixtures("without_memory", "starts_warm")
def test_mixtures_are_timed_with_the_experts_that_a_rank_holds(tmp_path: Path) -> None:
    path = config(
        tmp_path,
        model={**MODEL, **EXPERTS},
        plan={"pp": 2, "dp": 2, "ep": 2},
        execution={"framework": "megatron-core"},
    )
    benchmark = benchmark_layers(path, gpus=2, settings=QUICK)
    assert benchmark.share.experts == 4
    assert (benchmark.reduced_plan.ep, benchmark.world_size) == (1, 2)
    assert set(benchmark.times_us) == {"full_moe", "embedding", "head"}


@pytest.mark.usefixtures("without_memory", "starts_warm")
def test_tensor_parallel_layers_are_timed_together(tmp_path: Path) -> None:
    path = config(tmp_path, plan={"tp": 2, "pp": 2})
    benchmark = benchmark_layers(path, gpus=2, settings=QUICK)
    assert (benchmark.reduced_plan.tp, benchmark.reduced_plan.pp, benchmark.world_size) == (2, 1, 2)
    assert "backward" in benchmark.times_us["full_dense"]


@pytest.mark.usefixtures("on_another_cpu")
def test_layers_timed_on_another_cpu_are_not_measured_here(timed: tuple[str, str], command: Command) -> None:
    arguments = ["one-batch", timed[0], "--benchmark", timed[1], "--set", "cluster.profile=this-machine"]
    result = command.json(*arguments)
    assert result["sources"]["measured"] == 0 < result["sources"]["transferred"]
    assert any(note.startswith("the benchmark's layers were timed on") for note in result["provenance"]["notes"])
    assert main([*arguments, "--require-measured"]) == 3
