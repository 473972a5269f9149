"""Benchmark mode of memory: what is counted is exact, repeats itself, and restores the peak that was measured."""

import json
from dataclasses import replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch

from predict.layers.run_json import dump_run, load_run
from predict.measurement import benchmark
from predict.measurement.benchmark import run_memory_benchmark, unless_refused
from predict.measurement.count_bytes import TENSORS, LiveTensors, ReducedTraining, expandable_segments, storage_bytes
from predict.reduced_benchmark.benchmark_file import MemoryBenchmark, as_json, load_memory_benchmark
from predict.reduced_benchmark.reduced_run import reduced_for_memory
from predict.run.plan import Batch, Plan
from predict.workload.whole_layers import module_parameters
from sampling.errors import UserError
from tests.predict.reduced_benchmark.memory_runs import CPU, MODELS, benchmark_of, counted, run
from tests.tiny_runs import LLAMA, MOE


@pytest.fixture(scope="module")
def dense_benchmark() -> MemoryBenchmark:
    return benchmark_of(run())


@cache
def counts_of(model: str, precision: str = "fp32") -> dict[str, Any]:
    """Counted once for all tests of the module."""
    return counted(run(MODELS[model], precision=precision))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("model", MODELS)
def test_saved_bytes_are_those_of_a_count_by_hand(model: str, precision: str) -> None:
    """Counted by torch's hooks alone: every tensor packed in a forward, storages once, weights left out."""
    subject = run(MODELS[model], precision=precision)
    training = ReducedTraining(reduced_for_memory(subject, 1), CPU)
    weights = {parameter.untyped_storage().data_ptr() for parameter in training.parameters()}
    packed: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.setdefault(tensor.untyped_storage().data_ptr(), tensor.detach())
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        training.forward(0)
    by_hand = sum(tensor.untyped_storage().nbytes() for at, tensor in packed.items() if at not in weights)
    assert counts_of(model, precision)["bytes"]["saved"] == by_hand > 0


def test_saved_bytes_are_the_closed_forms_of_plain_torch(dense_benchmark: MemoryBenchmark) -> None:
    """Norms T(8H + 4), attention T[eH + e(2Ad + 2Gd) + 4A] with its rotary table, eager SwiGLU
    Te(H + 4F), head T(eH + 4V + 8) + 4, embedding 8T; e is 4 bytes."""
    tokens, hidden, seq_len = 2 * 32, LLAMA.hidden, 32
    norm = tokens * (8 * hidden + 4)
    attention = tokens * (4 * hidden + 4 * (2 * LLAMA.q_width + 2 * LLAMA.kv_width) + 4 * LLAMA.heads)
    mlp = tokens * 4 * (hidden + 4 * LLAMA.ffn)
    layer = 2 * norm + attention + 2 * seq_len * LLAMA.head_dim * 4 + mlp
    assert dense_benchmark.saved_by_unit == {
        "embedding": 8 * tokens,
        "full_dense": 2 * layer,
        "head": norm + tokens * (4 * hidden + 4 * LLAMA.vocab + 8) + 4,
    }


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("model", MODELS)
def test_the_peak_holds_what_is_known_to_live(model: str, precision: str) -> None:
    found = counts_of(model, precision)
    sizes = found["bytes"]
    assert sizes["forward_backward_peak"] >= sizes["saved"] + sizes["parameters"] + sizes["optimizer"]
    assert sizes["gradients"] == sizes["parameters"]
    inputs_and_tables = sizes["step_peak"] - sizes["parameters"] - sizes["gradients"] - sizes["optimizer"]
    assert 0 < inputs_and_tables < 0.1 * sizes["step_peak"]
    assert sizes["allocated"] == sizes["reserved"] == sizes["forward_backward_peak"]
    assert sum(found["saved_by_unit"].values()) == sizes["saved"]
    assert found["counter"] == TENSORS


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("model", MODELS)
def test_the_peak_is_that_of_torchs_own_allocator(model: str, precision: str, tmp_path: Path) -> None:
    """An independent witness: the CPU allocator's events in torch's profiler, on top of what lived before the pass."""
    subject = run(MODELS[model], precision=precision)
    sizes = counts_of(model, precision)["bytes"]
    training = ReducedTraining(reduced_for_memory(subject, 1), CPU)
    training.forward_backward()
    training.step()
    training.optimizers[0].zero_grad()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        training.forward_backward()
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("name") == "[memory]"]
    ordered = sorted(events, key=lambda event: float(event["ts"]))
    peak = max(accumulate(event["args"]["Bytes"] for event in ordered))
    lived_before = sizes["step_peak"] - sizes["gradients"]
    assert sizes["forward_backward_peak"] == lived_before + peak


@pytest.mark.parametrize("model", MODELS)
def test_parameters_are_the_modules_own(model: str) -> None:
    reduced = reduced_for_memory(run(MODELS[model]), 1)
    training = ReducedTraining(reduced, CPU)
    assert sum(parameter.numel() for parameter in training.parameters()) == module_parameters(reduced)
    if model != "moe":
        assert module_parameters(reduced) == reduced.model.parameters


def test_births_and_deaths_of_storages_are_seen() -> None:
    with LiveTensors() as live:
        first = torch.zeros(100)
        view = first[:50]
        assert (live.live_bytes, live.peak_bytes) == (400, 400)
        second = first + 1
        assert (live.live_bytes, live.peak_bytes) == (800, 800)
        del first
        assert live.live_bytes == 800  # the view holds its storage
        del view
        assert (live.live_bytes, live.peak_bytes) == (400, 800)
        live.reset_peak()
        assert live.peak_bytes == storage_bytes([second, second[3:]]) == 400
    del second
    assert live.live_bytes == 0


def test_a_storage_that_only_autograd_holds_lives() -> None:
    weight = torch.ones(100, requires_grad=True)
    with LiveTensors() as live:
        total = (weight * 2).exp().sum()
        assert live.live_bytes == 400 + 4  # of `exp`, which its backward needs, and the sum
        total.backward()  # type: ignore[no-untyped-call]
        assert live.live_bytes == 400 + 4  # the gradient, and the sum
        assert live.peak_bytes >= 800


def test_the_reduced_run_has_both_ends_and_two_layers_of_each_kind() -> None:
    reduced = reduced_for_memory(run(MOE, tp=2, pp=2, dp=4, ep=4, zero=1, recompute="full"), 1)
    assert (reduced.plan, reduced.model.layers) == (Plan(), 4)
    assert reduced.batch == Batch(global_=4, micro=2, seq_len=32)
    assert reduced.model.experts == replace(MOE.experts, count=2)  # type: ignore[type-var]
    assert reduced.execution.whole_layers
    assert reduced_for_memory(run(tp=2, pp=2, sp=True), 4).plan == Plan(tp=2, sp=True)
    assert reduced_for_memory(run(cp=2, dp=2), 1).batch.seq_len == 16


@pytest.mark.parametrize("model", MODELS)
def test_a_run_survives_its_way_to_the_ranks(model: str) -> None:
    subject = reduced_for_memory(run(MODELS[model], dp=2), 1)
    assert load_run(dump_run(subject)) == subject


@pytest.mark.parametrize("model", MODELS)
def test_the_run_that_was_counted_is_read_from_the_benchmark(model: str) -> None:
    subject = run(MODELS[model], pp=2, dp=2)
    reduced = reduced_for_memory(subject, 1)
    other = run(MODELS[model], dp=2, zero=1)
    found = benchmark_of(subject).reduced_run(other)
    assert replace(found, cluster=reduced.cluster) == reduced


def test_a_benchmark_of_time_stands_without_memory() -> None:
    reported: list[str] = []

    def fails() -> MemoryBenchmark:
        raise UserError("model: too large")

    assert unless_refused(fails, reported.append) is None
    assert reported == ["memory: not benchmarked (model: too large)"]


def test_what_cannot_fit_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "require_hardware", lambda *_: "cpu")
    monkeypatch.setattr(benchmark, "_available_bytes", lambda: 1e6)
    with pytest.raises(UserError, match=r"model: weights.* take .* MiB .*; give more --benchmark-gpus"):
        run_memory_benchmark(run(), 1)


def test_settings_of_the_allocator_are_read() -> None:
    assert expandable_segments({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64, expandable_segments:True"})
    assert expandable_segments({"PYTORCH_ALLOC_CONF": "expandable_segments: true"})
    assert not expandable_segments({"PYTORCH_HIP_ALLOC_CONF": "expandable_segments:False"})
    assert not expandable_segments({})


needs_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a machine with a GPU is not benchmarked as a CPU")


@pytest.mark.usefixtures("starts_warm")
@needs_cpu
def test_fresh_processes_count_the_same(dense_benchmark: MemoryBenchmark, tmp_path: Path) -> None:
    found = run_memory_benchmark(run(pp=2), 1)
    assert found.bytes == dense_benchmark.bytes
    assert found.saved_by_unit == dense_benchmark.saved_by_unit
    assert found.provenance["versions"]["torch"] == torch.__version__
    path = tmp_path / "memory.json"
    path.write_text(json.dumps({"memory": as_json(found)}))
    assert load_memory_benchmark(path) == found


@pytest.mark.usefixtures("starts_warm")
@needs_cpu
def test_a_tensor_parallel_rank_holds_its_share(dense_benchmark: MemoryBenchmark) -> None:
    """Attention, MLP and vocabulary are halved; norms are whole without sequence parallelism."""
    found, alone = run_memory_benchmark(run(tp=2), 2), dense_benchmark
    assert (found.world_size, found.plan.tp, found.plan.sp) == (2, 2, False)
    norms = 4 * LLAMA.hidden * (2 * 2 + 1)
    assert found.bytes.parameters == (alone.bytes.parameters - norms) / 2 + norms
    assert found.parameters * 4 == found.bytes.parameters
    assert alone.bytes.saved / 2 < found.bytes.saved < alone.bytes.saved
