"""Benchmark mode of memory: the reduced run is trained for real and its bytes are counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from predict.layers.run_json import dump_run
from predict.measurement.benchmark.this_machine import Tell, origin, require_hardware, require_modules
from predict.reduced_benchmark.benchmark_file import MemoryBenchmark, expert_share
from predict.reduced_benchmark.reduced_run import ranks_of, reduced_for_memory
from predict.run.training_run import TrainingRun
from predict.workload.whole_layers import module_parameters
from sampling.errors import UserError
from sampling.files.disk import scratch_folder
from sampling.files.schema import build
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.ranks.launch import launch
from sampling.units import GIB

TIMEOUT_S = 600.0
STATE_PASSES = 4
"""Weights, gradients and two moments, all in the weights' own dtype."""
MEMORY_FILE = Path("/proc/meminfo")


def run_memory_benchmark(
    run: TrainingRun, gpus: int = 1, *, tell: Tell = lambda _: None, timeout_s: float = TIMEOUT_S
) -> MemoryBenchmark:
    """Train the reduced run on at most `gpus` devices of this machine, in fresh processes, and count each rank's bytes.

    Raises UserError where this machine lacks the run's device or memory, and for a model without a whole-layer module.
    """
    hardware = require_hardware(run, gpus, "--benchmark-gpus")
    reduced = reduced_for_memory(run, gpus)
    require_modules(run, tell=tell, otherwise="their memory stays analytic")
    _require_room(reduced)
    return memory_benchmark_of(reduced, _count_in_processes(reduced, timeout_s), origin(hardware))


def memory_benchmark_of(reduced: TrainingRun, counted: dict[str, Any], provenance: dict[str, Any]) -> MemoryBenchmark:
    """The benchmark in what `memory_worker.count_bytes` counted of the reduced run, checked as its file is."""
    kinds = [kind.name for kind in reduced.model.kinds()]
    batch = reduced.batch
    content = {
        **MemoryBenchmark.HEADER,
        "plan": {"tp": reduced.plan.tp, "sp": reduced.plan.sp},
        "batch": {"global": batch.global_, "micro": batch.micro, "seq_len": batch.seq_len},
        "share": asdict(expert_share(reduced.model.experts)),
        "layers": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        "parameters": module_parameters(reduced),
        "world_size": ranks_of(reduced.plan),
        **counted,
        "provenance": provenance,
    }
    benchmark, faults = build(MemoryBenchmark, content)
    if benchmark is None:
        raise AssertionError(f"a benchmark that its own reader refuses: {faults}")
    return benchmark


def _count_in_processes(reduced: TrainingRun, timeout_s: float) -> dict[str, Any]:
    with scratch_folder("memory") as folder:
        config, result = folder / "run.json", folder / "result.json"
        config.write_text(dump_run(reduced))
        launch(
            ["-m", "predict.measurement.benchmark.memory_worker", str(config), str(result), str(timeout_s)],
            name=f"memory benchmark of {reduced.name}",
            processes=ranks_of(reduced.plan),
            threads=reduced.cluster.threads,
            timeout_s=timeout_s,
        )
        counted: dict[str, Any] = json.loads(result.read_text())
        return counted


def _require_room(reduced: TrainingRun) -> None:
    """UserError for a run that is sure not to fit: a benchmark that ends out of memory says nothing."""
    ranks = ranks_of(reduced.plan)
    needed = STATE_PASSES * DTYPE_BYTES.get(reduced.precision, 2) * module_parameters(reduced)
    gpu = reduced.cluster.gpu
    room = _available_bytes() / ranks if gpu.kind == "cpu" else gpu.memory_gib * GIB
    if needed > room:
        raise UserError(
            f"model: weights, gradients and optimizer of the reduced run take {needed / GIB:.1f} GiB on each of {ranks} "
            f"ranks, which have {room / GIB:.1f} GiB; give more --benchmark-gpus, or estimate without a benchmark"
        )


def _available_bytes() -> float:
    if not MEMORY_FILE.is_file():
        return float("inf")
    facts = dict(line.split(":", 1) for line in MEMORY_FILE.read_text().splitlines())
    return float(facts["MemAvailable"].split()[0]) * 2**10


def unless_refused(benchmark_memory: Callable[[], MemoryBenchmark], tell: Tell) -> MemoryBenchmark | None:
    """The memory part of a benchmark of time; None, with a word to `tell`, where memory cannot be benchmarked."""
    try:
        return benchmark_memory()
    except UserError as error:
        tell(f"memory: not benchmarked ({error})")
        return None
