"""Whole layers of a run timed for real on a few GPUs (or CPU shares) of this machine, under a plan reduced to fit them.

Each kind of layer, the embedding and the head run as the modules that the sampler times (`DenseLayer`, `MoELayer`, …), in
one fresh process per device. Devices that the reduced plan does not need run the same modules as busy neighbours: in a run,
too, the ranks of a node draw on its power and memory together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from predict.measurement.benchmark.memory_benchmark import run_memory_benchmark, unless_refused
from predict.measurement.benchmark.this_machine import Tell, origin, require_hardware, require_modules
from predict.reduced_benchmark.benchmark_file import Benchmark, PhaseTime, benchmark_of
from predict.reduced_benchmark.reduced_run import LAYERS_PER_KIND, reduced_for_time
from predict.run.execution import Execution
from predict.run.training_run import TrainingRun
from predict.workload.whole_layers import whole_layer_calls
from sampling.arithmetic.operator import Operator
from sampling.call import Phase
from sampling.errors import SamplesError
from sampling.files.disk import scratch_folder
from sampling.ranks.job import Job, take_messages
from sampling.ranks.launch import launch
from sampling.store.journal import read_journal
from sampling.store.sample import Sample
from sampling.timing.timer import TimerSettings

BUDGET_S = 600.0
"""Time within which calls are started; a started call is finished."""
GRACE_S = 300.0
QUIET = TimerSettings(attempts=2)


def benchmark_layers(run: TrainingRun, gpus: int, *, tell: Tell, settings: TimerSettings = QUIET) -> Benchmark:
    """Reduce the run to `gpus` devices of this machine and time its layers there; `tell` is told what stays simulated.

    Raises UserError where this machine lacks the run's device or cores, SamplesError for layers that could not be timed.
    """
    reduced = reduced_for_time(run, gpus)
    hardware = require_hardware(run, gpus)
    require_modules(run, tell=tell, otherwise="they stay simulated")
    calls = whole_layer_calls(reduced)
    ranks = _busy_ranks(run, reduced, gpus)
    samples, messages = _time(calls, reduced, ranks, hardware, settings)
    for message in messages:
        tell(message)
    times_us = _times_us(calls, samples, run.execution, messages)
    return benchmark_of(
        run,
        reduced,
        times_us,
        {"layers_of_a_kind": LAYERS_PER_KIND, "notes": messages, **origin(hardware)},
        world_size=ranks,
        memory=unless_refused(lambda: run_memory_benchmark(run, gpus, tell=tell), tell),
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
        why = "; ".join(messages) or f"not reached within {BUDGET_S:g} s"
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
            f"  {unit:<16}{phase:<22}{timed.median:>12,.1f} µs   {timed.low:,.1f} to {timed.high:,.1f}"
            for phase, timed in phases.items()
        ]
    return "\n".join(lines)
