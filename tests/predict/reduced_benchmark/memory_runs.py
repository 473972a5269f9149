"""Tiny runs to count the memory of, and the benchmark of one."""

from dataclasses import replace
from typing import Any

import torch

from predict.measurement.benchmark import memory_benchmark_of
from predict.measurement.count_bytes import count_bytes
from predict.model.spec import ModelSpec
from predict.reduced_benchmark.benchmark_file import MemoryBenchmark
from predict.reduced_benchmark.reduced_run import reduced_for_memory
from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from tests.tiny_runs import LLAMA, MOE, tiny_run

CPU = torch.device("cpu")
MODELS = {"dense": LLAMA, "moe": MOE, "tied": replace(LLAMA, tied=True)}


def run(model: ModelSpec = LLAMA, *, precision: str = "fp32", **plan: Any) -> TrainingRun:
    """A run of 4 microbatches on nodes of two CPU ranks with one thread each."""
    return tiny_run(model, per_node=2, batch=(8 * Plan(**plan).dp, 2, 32), precision=precision, **plan)


def counted(subject: TrainingRun) -> dict[str, Any]:
    return count_bytes(reduced_for_memory(subject, 1), CPU)


def benchmark_of(subject: TrainingRun) -> MemoryBenchmark:
    """The benchmark that `run_memory_benchmark` takes, without fresh processes."""
    reduced = reduced_for_memory(subject, 1)
    return memory_benchmark_of(reduced, count_bytes(reduced, CPU), {})
