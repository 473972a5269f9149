"""Benchmarks of layers and of memory on a GPU."""

import math
from pathlib import Path

import pytest
import torch

from predict.measurement.benchmark import benchmark as benchmark_layers
from predict.measurement.benchmark import memory_benchmark_of
from predict.measurement.count_bytes import count_bytes
from predict.reduced_benchmark.reduced_run import reduced_for_memory
from sampling.hardware.this_device import detect_hardware
from tests.predict.cli.benchmarked_config import config
from tests.predict.reduced_benchmark.memory_runs import CPU, MODELS, run

if not torch.cuda.is_available():
    pytest.skip("no GPU here; this benchmarks layers and memory on one", allow_module_level=True)


def test_layers_are_timed_on_a_gpu(tmp_path: Path) -> None:
    machine = {"hardware": detect_hardware(), "nodes": 1, "gpus_per_node": 4, "profile": "nowhere"}
    path = config(tmp_path, cluster=machine, precision="bf16")
    benchmark = benchmark_layers(path, gpus=1)
    assert benchmark.times_us["full_dense"]["forward"].median > 0


@pytest.mark.parametrize("model", MODELS)
def test_a_gpu_tells_its_allocators_peaks(model: str) -> None:
    reduced = reduced_for_memory(run(MODELS[model], precision="bf16"), 1)
    found = count_bytes(reduced, torch.device("cuda", 0))
    sizes = found["bytes"]
    assert memory_benchmark_of(reduced, found, {}).bytes.allocated == sizes["allocated"]
    assert sizes["reserved"] >= sizes["allocated"] >= sizes["saved"] + sizes["parameters"] + sizes["optimizer"]
    assert math.isclose(sizes["parameters"], count_bytes(reduced, CPU)["bytes"]["parameters"])
