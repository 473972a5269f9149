"""Benchmark mode of memory: the reduced run trained for real, its bytes counted, and a target's peak restored from them.

artifact = run_memory_benchmark(run, gpus=1)
point_bytes, upper_bytes, terms = restore(target, artifact, analytic)

The artifact is the `memory` part of the JSON that `predict benchmark` writes: one file serves time and memory.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from predict.anchor.memory_part import VERSION, memory_faults, memory_run, parameters_of, place_of
from predict.anchor.reduced_run import ranks_of
from predict.anchor.restore_memory import restore
from predict.measure.machine import require_hardware
from predict.measure.plain import dump_run
from predict.run.training_run import TrainingRun
from predict.workload.whole_layers import kinds_without_module, whole_layer_calls
from sampling.errors import UserError
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.hardware.this_device import identify, provenance
from sampling.ranks.launch import launch

__all__ = ["restore", "run_memory_benchmark"]

TIMEOUT_S = 600.0
STATE_PASSES = 4
"""Weights, gradients and two moments, all in the weights' own dtype."""
MEMORY_FILE = Path("/proc/meminfo")
Tell = Callable[[str], None]


def run_memory_benchmark(
    run: TrainingRun, gpus: int = 1, *, tell: Tell = lambda _: None, timeout_s: float = TIMEOUT_S
) -> dict[str, Any]:
    """Train what of the run fits on `gpus` devices of this machine, in fresh processes, and count each rank's bytes.

    Raises UserError for a run that this machine has not the device or the memory for, and for layers without a module.
    """
    hardware = require_hardware(run, gpus)
    cut = memory_run(run, gpus)
    for kind in kinds_without_module(run):
        tell(f"{kind}: no whole-layer module stands for these layers; their memory stays analytic")
    if len(whole_layer_calls(cut)) <= 2:
        raise UserError(
            f"model: {run.model.name} has no layer kind that can be run whole; estimate it without a benchmark"
        )
    _require_room(cut)
    counted = _count(cut, timeout_s)
    artifact = {
        "version": VERSION,
        **place_of(cut),
        "parameters": parameters_of(cut),
        "world_size": ranks_of(cut.plan),
        **counted,
        "provenance": {
            "identity": identify(hardware),
            "hardware": hardware,
            "framework": "torch",
            "date": time.strftime("%Y-%m-%d"),
            **provenance(),
        },
    }
    faults = list(memory_faults(artifact))
    if faults:
        raise AssertionError(f"a benchmark that its own reader refuses: {'; '.join(faults)}")
    return artifact


def _count(cut: TrainingRun, timeout_s: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="memory-") as folder:
        config, result = Path(folder, "run.json"), Path(folder, "result.json")
        config.write_text(dump_run(cut))
        launch(
            ["-m", "predict.measure.benchmark.memory_worker", str(config), str(result), str(timeout_s)],
            name=f"memory benchmark of {cut.name}",
            processes=ranks_of(cut.plan),
            threads=cut.cluster.threads,
            timeout_s=timeout_s,
        )
        counted: dict[str, Any] = json.loads(result.read_text())
        return counted


def _require_room(cut: TrainingRun) -> None:
    """What is sure not to fit is not begun: a benchmark that ends in out-of-memory says nothing."""
    ranks = ranks_of(cut.plan)
    needed = STATE_PASSES * DTYPE_BYTES.get(cut.precision, 2) * parameters_of(cut)
    on_cpu = cut.cluster.gpu.kind == "cpu"
    room = _available_bytes() / ranks if on_cpu else cut.cluster.gpu.memory_gib * 2**30
    if needed > room:
        raise UserError(
            f"model: weights, gradients and optimizer of the reduced run take {needed / 2**30:.1f} GiB on each of {ranks} "
            f"ranks, which have {room / 2**30:.1f} GiB; give more --gpus, or estimate without a benchmark"
        )


def _available_bytes() -> float:
    if not MEMORY_FILE.is_file():
        return float("inf")
    facts = dict(line.split(":", 1) for line in MEMORY_FILE.read_text().splitlines())
    return float(facts["MemAvailable"].split()[0]) * 2**10


def with_memory(benchmark_memory: Callable[[], dict[str, Any]], tell: Tell) -> dict[str, Any] | None:
    """A memory benchmark beside one of time: where it cannot run, the latter is worth having alone."""
    try:
        return benchmark_memory()
    except UserError as error:
        tell(f"memory: not benchmarked ({error})")
        return None
