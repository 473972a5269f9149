"""Whole layers of a run timed for real on a few GPUs (or CPU shares) of this machine, under a plan reduced to fit them.

Each layer kind, the embedding and the head run as the modules that the sampler times (`DenseLayer`, `MoELayer`, …), in
fresh processes, one a device. Devices that the reduced plan does not need run the same beside it, as busy neighbours: in a
run, too, the ranks of a node draw on its power and memory together.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from predict.anchor.benchmark_file import Benchmark, Timed, benchmark_of
from predict.anchor.reduced_run import KEPT, reduced, timeable
from predict.measure.benchmark.memory_benchmark import run_memory_benchmark, with_memory
from predict.measure.machine import require_hardware
from predict.run.execution import Execution
from predict.run.training_run import TrainingRun
from predict.workload.whole_layers import kinds_without_module, whole_layer_calls
from sampling.arithmetic.operator import Operator
from sampling.call import Phase
from sampling.errors import SamplesError, UserError
from sampling.hardware.this_device import identify, provenance
from sampling.ranks.job import Job
from sampling.ranks.launch import launch
from sampling.ranks.messages import take_messages
from sampling.store.sample import Sample, sample_from_row
from sampling.timing.timer import TimerSettings

BUDGET_S = 600.0
"""Within which calls are begun; one that runs is finished."""
GRACE_S = 300.0
QUIET = TimerSettings(attempts=2)

Tell = Callable[[str], None]


def benchmark_layers(run: TrainingRun, gpus: int, *, tell: Tell, settings: TimerSettings = QUIET) -> Benchmark:
    """Reduce the run to `gpus` devices of this machine and time its layers there; `tell` is told what is left out.

    Raises UserError for a run that this machine has not the device or the cores for, and for layers that cannot be timed.
    """
    cut = timeable(reduced(run, gpus))
    hardware = require_hardware(run, gpus)
    calls = whole_layer_calls(cut)
    for kind in kinds_without_module(run):
        tell(f"{kind}: no whole-layer module stands for these layers; they stay simulated")
    if len(calls) <= 2:
        raise UserError(
            f"model: {run.model.name} has no layer kind that can be timed whole; predict it without --benchmark"
        )
    ranks = _busy_ranks(run, cut, gpus)
    samples, notes = _time(calls, cut, ranks, hardware, settings)
    for note in notes:
        tell(note)
    timed = benchmark_of(
        run,
        cut,
        _times(calls, samples, run.execution, notes),
        {
            "identity": identify(hardware),
            "hardware": hardware,
            "layers_of_a_kind": KEPT,
            "framework": "torch",
            "date": time.strftime("%Y-%m-%d"),
            "notes": notes,
            **provenance(),
        },
        world_size=ranks,
    )
    return replace(timed, memory=with_memory(lambda: run_memory_benchmark(run, gpus, tell=tell), tell))


def _busy_ranks(run: TrainingRun, cut: TrainingRun, gpus: int) -> int:
    """As many whole tensor-parallel groups as the GPUs at hand have room for, and no more than a node of the run has."""
    group = cut.plan.tp
    return max(1, min(gpus, run.cluster.gpus_per_node) // group) * group


def _time(
    calls: Mapping[str, Operator], cut: TrainingRun, ranks: int, hardware: str, settings: TimerSettings
) -> tuple[list[Sample], list[str]]:
    """The rows of all phases, and what the ranks noted."""
    group, threads = cut.plan.tp, cut.cluster.threads
    with tempfile.TemporaryDirectory(prefix="layers-") as folder:
        directory = Path(folder)
        job = Job(
            directory=folder,
            profile="benchmark",
            hardware=hardware,
            cores=threads * ranks or None,
            ranks_per_node=ranks,
            session=0,
            budget_s=BUDGET_S,
            timer=asdict(settings),
            group=(group, group) if 1 < group < ranks else None,
            requests=[(call.NAME, call.fields(), list(call.PHASES)) for call in calls.values()],
        )
        (directory / "job.json").write_text(json.dumps(asdict(job)))
        launch(
            ["-m", "sampling.ranks.worker", str(directory / "job.json")],
            name=f"benchmark of {cut.name}",
            processes=ranks,
            threads=threads,
            timeout_s=BUDGET_S + GRACE_S,
        )
        journal = directory / "journal.jsonl"
        rows = journal.read_text().splitlines() if journal.is_file() else []
        return [sample_from_row(json.loads(row)) for row in rows], take_messages(directory)


def _times(
    calls: Mapping[str, Operator], samples: Iterable[Sample], execution: Execution, notes: list[str]
) -> dict[str, dict[Phase, Timed]]:
    """By unit and phase; rows at the clocks that the run has, where a device was timed in several states. Rows that the
    sampler would set aside are kept with a note: nothing else stands for them."""
    found: dict[str, dict[Phase, Timed]] = {unit: {} for unit in calls}
    ordered = sorted(samples, key=lambda sample: sample.state == execution.clocks)
    for sample in ordered:
        for unit, call in calls.items():
            if sample.call == call:
                found[unit][sample.phase] = _timed(sample)
                if sample.quarantine:
                    notes.append(f"{unit} {sample.phase}: {sample.quarantine}")
    lacking = [unit for unit, phases in found.items() if not {"forward", "backward"} <= phases.keys()]
    if lacking:
        why = "; ".join(notes) or f"not reached within {BUDGET_S:g} s"
        raise SamplesError(
            f"{', '.join(lacking)}: forward and backward could not be timed here ({why}); benchmark on more GPUs"
        )
    return found


def _timed(sample: Sample) -> Timed:
    return Timed(median_us=sample.time_us, low_us=sample.low_us, high_us=sample.high_us)


def summary(benchmark: Benchmark) -> str:
    """A few lines for a reader."""
    plan: dict[str, Any] = asdict(benchmark.reduced)
    degrees = " · ".join(f"{name} {plan[name]}" for name in ("tp", "pp", "dp", "cp", "ep"))
    lines = [f"{benchmark.run}: {degrees} on {benchmark.world_size} × {benchmark.device}"]
    for unit, phases in benchmark.times.items():
        lines += [
            f"  {unit:<16}{phase:<22}{timed.median_us:>12,.1f} µs   {timed.low_us:,.1f} to {timed.high_us:,.1f}"
            for phase, timed in phases.items()
        ]
    return "\n".join(lines)
