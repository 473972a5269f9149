"""Benchmark mode of memory: what is counted is exact, repeats itself, and restores the peak that was measured."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch

from predict.anchor.memory_part import memory_faults, memory_run, parameters_of, run_measured
from predict.measure.benchmark import memory_benchmark
from predict.measure.benchmark.memory_benchmark import run_memory_benchmark, with_memory
from predict.measure.benchmark.memory_worker import TENSORS, count_bytes, expandable_segments
from predict.measure.benchmark.reduced_training import ReducedTraining
from predict.measure.live_tensors import LiveTensors, storage_bytes
from predict.measure.plain import dump_run, load_run
from predict.run.plan import Batch, Plan
from sampling.errors import UserError
from tests.needs import needs_gpu
from tests.predict.anchor.memory_runs import CPU, DENSE, MIXED, MODELS, artifact_of, counted, run


@pytest.fixture(scope="module")
def dense_artifact() -> dict[str, Any]:
    return artifact_of(run())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("model", MODELS)
def test_saved_bytes_are_those_of_a_count_by_hand(model: str, precision: str) -> None:
    """By torch's hooks alone: every tensor packed in a forward, storages once, weights left out."""
    subject = run(MODELS[model], precision=precision)
    training = ReducedTraining(memory_run(subject, 1), CPU)
    weights = {parameter.untyped_storage().data_ptr() for parameter in training.parameters()}
    packed: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.setdefault(tensor.untyped_storage().data_ptr(), tensor.detach())
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        training.forward(0)
    by_hand = sum(tensor.untyped_storage().nbytes() for at, tensor in packed.items() if at not in weights)
    assert counted(subject)["bytes"]["saved"] == by_hand > 0


def test_saved_bytes_are_the_closed_forms_of_plain_torch(dense_artifact: dict[str, Any]) -> None:
    """facts/activations-exact.md: norms T(8H + 4), attention T[eH + e(2Ad + 2Gd) + 4A] with its rotary table, eager SwiGLU
    Te(H + 4F), head T(eH + 4V + 8) + 4, embedding 8T; e is 4 bytes."""
    tokens, hidden, seq_len = 2 * 32, DENSE.hidden, 32
    norm = tokens * (8 * hidden + 4)
    attention = tokens * (4 * hidden + 4 * (2 * DENSE.q_width + 2 * DENSE.kv_width) + 4 * DENSE.heads)
    mlp = tokens * 4 * (hidden + 4 * DENSE.ffn)
    layer = 2 * norm + attention + 2 * seq_len * DENSE.head_dim * 4 + mlp
    assert dense_artifact["saved_by_unit"] == {
        "embedding": 8 * tokens,
        "full_dense": 2 * layer,
        "head": norm + tokens * (4 * hidden + 4 * DENSE.vocab + 8) + 4,
    }


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("model", MODELS)
def test_the_peak_holds_what_is_known_to_live(model: str, precision: str) -> None:
    found = counted(run(MODELS[model], precision=precision))
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
    sizes = counted(subject)["bytes"]
    training = ReducedTraining(memory_run(subject, 1), CPU)
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
    cut = memory_run(run(MODELS[model]), 1)
    training = ReducedTraining(cut, CPU)
    assert sum(parameter.numel() for parameter in training.parameters()) == parameters_of(cut)
    if model != "moe":
        assert parameters_of(cut) == cut.model.parameters


@pytest.mark.parametrize("model", MODELS)
def test_counts_repeat_themselves(model: str) -> None:
    assert counted(run(MODELS[model])) == counted(run(MODELS[model]))


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
    cut = memory_run(run(MIXED, tp=2, pp=2, dp=4, ep=4, zero=1, recompute="full"), 1)
    assert (cut.plan, cut.model.layers) == (Plan(), 4)
    assert cut.batch == Batch(global_=4, micro=2, seq_len=32)
    assert cut.model.experts == replace(MIXED.experts, count=2)  # type: ignore[type-var]
    assert cut.execution.whole_layers
    assert memory_run(run(tp=2, pp=2, sp=True), 4).plan == Plan(tp=2, sp=True)
    assert memory_run(run(cp=2, dp=2), 1).batch.seq_len == 16


@pytest.mark.parametrize("model", MODELS)
def test_a_run_survives_its_way_to_the_ranks(model: str) -> None:
    subject = memory_run(run(MODELS[model], dp=2), 1)
    assert load_run(dump_run(subject)) == subject


@pytest.mark.parametrize("model", MODELS)
def test_the_run_that_was_measured_is_read_from_the_artifact(model: str) -> None:
    subject = run(MODELS[model], pp=2, dp=2)
    cut = memory_run(subject, 1)
    other = run(MODELS[model], dp=2, zero=1)
    found = run_measured(other, artifact_of(subject))
    assert replace(found, cluster=cut.cluster) == cut


def test_a_benchmark_of_time_stands_without_memory() -> None:
    told: list[str] = []

    def fails() -> dict[str, Any]:
        raise UserError("model: too large")

    assert with_memory(fails, told.append) is None
    assert told == ["memory: not benchmarked (model: too large)"]


def test_what_cannot_fit_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_benchmark, "require_hardware", lambda *_: "cpu")
    monkeypatch.setattr(memory_benchmark, "_available_bytes", lambda: 1e6)
    with pytest.raises(UserError, match=r"model: weights.* take .* GiB .*; give more --gpus"):
        run_memory_benchmark(run(), 1)


def test_settings_of_the_allocator_are_read() -> None:
    assert expandable_segments({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64, expandable_segments:True"})
    assert expandable_segments({"PYTORCH_ALLOC_CONF": "expandable_segments: true"})
    assert not expandable_segments({"PYTORCH_HIP_ALLOC_CONF": "expandable_segments:False"})
    assert not expandable_segments({})


needs_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a machine with a GPU is not benchmarked as a CPU")


@needs_cpu
def test_fresh_processes_count_the_same(dense_artifact: dict[str, Any]) -> None:
    found = run_memory_benchmark(run(pp=2), 1)
    assert found["bytes"] == dense_artifact["bytes"]
    assert found["saved_by_unit"] == dense_artifact["saved_by_unit"]
    assert found["provenance"]["versions"]["torch"] == torch.__version__
    assert list(memory_faults(json.loads(json.dumps(found)))) == []


@needs_cpu
def test_a_tensor_parallel_rank_holds_its_share() -> None:
    """Attention, MLP and vocabulary are halved; norms are whole without sequence parallelism."""
    found = run_memory_benchmark(run(tp=2), 2)
    alone = artifact_of(run())
    assert (found["world_size"], found["plan"]) == (2, {"tp": 2, "sp": False})
    norms = 4 * DENSE.hidden * (2 * 2 + 1)
    assert found["bytes"]["parameters"] == (alone["bytes"]["parameters"] - norms) / 2 + norms
    assert found["parameters"] * 4 == found["bytes"]["parameters"]
    assert alone["bytes"]["saved"] / 2 < found["bytes"]["saved"] < alone["bytes"]["saved"]


@needs_gpu
@pytest.mark.parametrize("model", MODELS)
def test_a_gpu_tells_its_allocators_peaks(model: str) -> None:
    cut = memory_run(run(MODELS[model], precision="bf16"), 1)
    found = count_bytes(cut, torch.device("cuda", 0))
    sizes = found["bytes"]
    assert list(memory_faults({**artifact_of(run(MODELS[model], precision="bf16")), **found})) == []
    assert sizes["reserved"] >= sizes["allocated"] >= sizes["saved"] + sizes["parameters"] + sizes["optimizer"]
    assert math.isclose(sizes["parameters"], count_bytes(cut, CPU)["bytes"]["parameters"])
