"""A run benchmarked on a few devices of this machine, under a plan reduced to fit them: whole layers timed, memory counted.

Each kind of layer, the embedding and the head run as the modules that the sampler times (`DenseLayer`, `MoELayer`, …), in
one fresh process per device. Devices that the reduced plan does not need run the same modules as busy neighbours: in a run,
too, the ranks of a node draw on its power and memory together.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from predict import load
from predict.config.document import Config
from predict.layers.run_json import dump_run
from predict.measurement.worker import run_in_processes
from predict.reduced_benchmark.benchmark_file import Benchmark, MemoryBenchmark, PhaseTime, benchmark_of, expert_share
from predict.reduced_benchmark.reduced_run import LAYERS_PER_KIND, ranks_of, reduced_for_memory, reduced_for_time
from predict.run.execution import Execution
from predict.run.training_run import TrainingRun
from predict.workload.whole_layers import kinds_without_module, module_parameters, whole_layer_calls
from sampling.arithmetic.operator import Operator
from sampling.call import Phase
from sampling.errors import SamplesError, UserError
from sampling.files.disk import scratch_folder
from sampling.files.schema import build
from sampling.hardware.cluster import DTYPE_BYTES, hardware_facts
from sampling.hardware.this_device import detect_hardware, identify, most_ranks, provenance
from sampling.number_text import plain, significant, size
from sampling.ranks.job import Job, take_messages
from sampling.ranks.launch import launch
from sampling.store.journal import read_journal
from sampling.store.sample import Sample
from sampling.timing.timer import TimerSettings
from sampling.units import GIB

Report = Callable[[str], None]


def require_hardware(run: TrainingRun, gpus: int, option: str = "--gpus") -> str:
    """The catalogue's name of this machine's device. UserError unless it is the run's, with room for `gpus` ranks, which
    `option` gave."""
    hardware = detect_hardware()
    device = hardware_facts(hardware).name
    wanted = run.cluster.gpu
    if device != wanted.name:
        raise UserError(
            f"cluster.hardware: the run is on {wanted.name}, this machine has {device}; benchmark on a machine of the run's "
            f"hardware, or time this one with --set cluster.hardware={hardware}"
        )
    most = most_ranks(hardware)
    if gpus > most:
        raise UserError(f"{option}: {gpus}, but this machine has {most} to time on; give {most} or less")
    threads = min(gpus, run.cluster.gpus_per_node) * wanted.threads
    cores = os.cpu_count() or 1
    if threads > cores:
        raise UserError(
            f"cluster.cores: {threads} threads of ranks that have {wanted.threads} each, and this machine has {cores} cores; "
            f"give a smaller {option}, or set cluster.cores to {run.cluster.gpus_per_node * (cores // gpus)}"
        )
    return hardware


def require_modules(run: TrainingRun, *, report: Report, otherwise: str) -> None:
    """UserError for a model without any whole-layer module. Each kind of layer without one is reported through `report`,
    with what is done instead (`otherwise`)."""
    missing = kinds_without_module(run)
    for kind in missing:
        report(f"{kind}: no whole-layer module stands for these layers; {otherwise}")
    if len(missing) == len(set(run.model.kinds())):
        raise UserError(
            f"model: {run.model.name} has no layer kind that can be run whole; predict it without a benchmark"
        )


def origin(hardware: str) -> dict[str, Any]:
    """The provenance of a benchmark taken here and now."""
    return {
        "identity": identify(hardware),
        "hardware": hardware,
        "framework": "torch",
        "date": time.strftime("%Y-%m-%d"),
        **provenance(),
    }


# Benchmark mode of memory: the reduced run is trained for real and its bytes are counted.

TIMEOUT_S = 600.0
STATE_PASSES = 4
"""Weights, gradients and two moments, all in the weights' own dtype."""
MEMORY_FILE = Path("/proc/meminfo")


def run_memory_benchmark(run: TrainingRun, gpus: int = 1, *, report: Report = lambda _: None) -> MemoryBenchmark:
    """Train the reduced run on at most `gpus` devices of this machine, in fresh processes, and count each rank's bytes.

    Raises UserError where this machine lacks the run's device or memory, and for a model without a whole-layer module.
    """
    hardware = require_hardware(run, gpus, "--benchmark-gpus")
    reduced = reduced_for_memory(run, gpus)
    require_modules(run, report=report, otherwise="their memory stays analytic")
    _require_room(reduced)
    return memory_benchmark_of(reduced, _count_in_processes(reduced), origin(hardware))


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


def _count_in_processes(reduced: TrainingRun) -> dict[str, Any]:
    counted: dict[str, Any] = run_in_processes(
        "memory",
        {"run": dump_run(reduced), "timeout_s": TIMEOUT_S},
        name=f"memory benchmark of {reduced.name}",
        processes=ranks_of(reduced.plan),
        threads=reduced.cluster.threads,
        timeout_s=TIMEOUT_S,
    )
    return counted


def _require_room(reduced: TrainingRun) -> None:
    """UserError for a run that is sure not to fit: a benchmark that ends out of memory says nothing."""
    ranks = ranks_of(reduced.plan)
    needed = STATE_PASSES * DTYPE_BYTES.get(reduced.precision, 2) * module_parameters(reduced)
    gpu = reduced.cluster.gpu
    room = _available_bytes() / ranks if gpu.kind == "cpu" else gpu.memory_gib * GIB
    if needed > room:
        raise UserError(
            f"model: weights, gradients and optimizer of the reduced run take {size(needed)} on each of {ranks} "
            f"ranks, which have {size(room)}; give more --benchmark-gpus, or estimate without a benchmark"
        )


def _available_bytes() -> float:
    if not MEMORY_FILE.is_file():
        return float("inf")
    facts = dict(line.split(":", 1) for line in MEMORY_FILE.read_text().splitlines())
    return float(facts["MemAvailable"].split()[0]) * 2**10


def unless_refused(benchmark_memory: Callable[[], MemoryBenchmark], report: Report) -> MemoryBenchmark | None:
    """The memory part of a benchmark of time; None, with a word to `report`, where memory cannot be benchmarked."""
    try:
        return benchmark_memory()
    except UserError as error:
        report(f"memory: not benchmarked ({error})")
        return None


# Whole layers timed.

BUDGET_S = 600.0
"""Time within which calls are started; a started call is finished."""
GRACE_S = 300.0
QUIET = TimerSettings(attempts=2)


def benchmark(
    config: Config,
    overrides: Sequence[str] = (),
    *,
    gpus: int,
    report: Report = lambda line: None,
    settings: TimerSettings = QUIET,
) -> Benchmark:
    """Reduce the run of a config to `gpus` devices of this machine and time its layers there; what stays simulated is reported.

    Raises UserError where this machine lacks the run's device or cores, SamplesError for layers that could not be timed.
    """
    run = load(config, overrides)
    reduced = reduced_for_time(run, gpus)
    hardware = require_hardware(run, gpus)
    require_modules(run, report=report, otherwise="they stay simulated")
    calls = whole_layer_calls(reduced)
    ranks = _busy_ranks(run, reduced, gpus)
    samples, messages = _time(calls, reduced, ranks, hardware, settings)
    for message in messages:
        report(message)
    times_us = _times_us(calls, samples, run.execution, messages)
    return benchmark_of(
        run,
        reduced,
        times_us,
        {"layers_of_a_kind": LAYERS_PER_KIND, "notes": messages, **origin(hardware)},
        world_size=ranks,
        memory=unless_refused(lambda: run_memory_benchmark(run, gpus, report=report), report),
    )


def _busy_ranks(run: TrainingRun, reduced: TrainingRun, gpus: int) -> int:
    """Ranks of all tensor-parallel groups that the GPUs at hand have room for, and no more than a node of the run has."""
    group = reduced.plan.tp
    return max(1, min(gpus, run.cluster.gpus_per_node) // group) * group


def _time(
    calls: Mapping[str, Operator], reduced: TrainingRun, ranks: int, hardware: str, settings: TimerSettings
) -> tuple[list[Sample], list[str]]:
    """The samples of all phases, and the ranks' messages."""
    group, threads = reduced.plan.tp, reduced.cluster.threads
    with scratch_folder("layers") as directory:
        job = Job(
            directory=str(directory),
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
            name=f"benchmark of {reduced.name}",
            processes=ranks,
            threads=threads,
            timeout_s=BUDGET_S + GRACE_S,
        )
        return read_journal(directory), take_messages(directory)


def _times_us(
    calls: Mapping[str, Operator], samples: Iterable[Sample], execution: Execution, messages: list[str]
) -> dict[str, dict[Phase, PhaseTime]]:
    """Times by unit and phase, at the run's clocks where a device was timed in several states. Samples that the sampler would
    set aside are kept with a message: nothing else stands for them."""
    found: dict[str, dict[Phase, PhaseTime]] = {unit: {} for unit in calls}
    ordered = sorted(samples, key=lambda sample: sample.state == execution.clocks)
    for sample in ordered:
        for unit, call in calls.items():
            if sample.call == call:
                found[unit][sample.phase] = PhaseTime(median=sample.time_us, low=sample.low_us, high=sample.high_us)
                if sample.quarantine:
                    messages.append(f"{unit} {sample.phase}: {sample.quarantine}")
    lacking = [unit for unit, phases in found.items() if not {"forward", "backward"} <= phases.keys()]
    if lacking:
        why = "; ".join(messages) or f"not reached within {plain(BUDGET_S)} s"
        raise SamplesError(
            f"{', '.join(lacking)}: forward and backward could not be timed here ({why}); benchmark on more GPUs"
        )
    return found


def summary(benchmark: Benchmark) -> str:
    """The plan that was timed and each time, for a terminal."""
    degrees = " · ".join(f"{name} {getattr(benchmark.reduced_plan, name)}" for name in ("tp", "pp", "dp", "cp", "ep"))
    lines = [f"{benchmark.run}: {degrees} on {benchmark.world_size} × {benchmark.device.name}"]
    for unit, phases in benchmark.times_us.items():
        lines += [
            f"  {unit:<16}{phase:<22}{significant(timed.median):>12} µs   {significant(timed.low)} to {significant(timed.high)}"
            for phase, timed in phases.items()
        ]
    return "\n".join(lines)
