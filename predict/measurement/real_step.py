"""The truth that predictions are compared with: a run trained for a few real steps, in fresh processes, and timed.

measurement = measure(run)
measurement.median_us, measurement.to_json()
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from predict.layers.run_json import dump_run
from predict.measurement.measurement import DeviceRecord, Measurement, pool, settings_of
from predict.measurement.requirements import Implementation, require_gpu_of, require_measurable, require_no_other_traces
from predict.measurement.system_noise import others_shares_here, usage_of
from predict.measurement.turns import KeptRounds, in_turns
from predict.measurement.worker import run_in_processes
from predict.plan_search.answer import Answer
from predict.run.training_run import TrainingRun
from sampling.errors import UserError
from sampling.number_text import duration
from sampling.store.pace_log import References

STEPS = 10
WARMUP = 3
"""Steps until the allocator has all its memory and torch's lazy set-up is done; measured on CPU, see rank_environment."""


def measure(
    run: TrainingRun,
    *,
    steps: int | None = None,
    warmup: int = WARMUP,
    implementation: Implementation = "torch",
    timeout_s: float = 600,
    trace: Path | None = None,
) -> Measurement:
    """Train the run on random tokens and time `steps` steps after a warm-up: by default STEPS on a CPU, on a GPU as many as
    fill ten seconds. `warmup` are the steps that a CPU runs first; a GPU warms up for three seconds. Into the folder `trace` goes a
    trace of a few more steps of each rank, by torch's profiler.

    Raises UserError for a run that cannot be measured (before anything starts), a rank that fails, or a time-out.
    """
    _require(run, implementation)
    if run.cluster.gpu.kind != "cpu":
        if trace:
            raise UserError(
                "--trace: steps of a GPU are not traced here; record them with torch.profiler in your own run"
            )
        return of_one_gpu(run, train_alone(run, steps=steps, timeout_s=timeout_s))
    steps = steps or STEPS
    if trace:
        require_no_other_traces(trace, run.cluster.world_size)
        trace.mkdir(parents=True, exist_ok=True)
    report = run_in_processes(
        "training",
        {
            "run": dump_run(run),
            "steps": warmup + steps,
            "warmup": warmup,
            "implementation": implementation,
            "timeout_s": timeout_s,
            "trace": str(trace.absolute()) if trace else None,
        },
        name=run.name,
        processes=run.cluster.world_size,
        threads=run.cluster.threads,
        timeout_s=timeout_s,
    )
    return summarize(run, implementation, report, warmup=warmup)


def train_alone(run: TrainingRun, *, steps: int | None, timeout_s: float, device: str = "cuda") -> Mapping[str, Any]:
    """The report of a run on one GPU (`predict.measurement.one_gpu.train`)."""
    report: Mapping[str, Any] = run_in_processes(
        "one-gpu",
        {"run": dump_run(run), "steps": steps, "device": device},
        name=run.name,
        processes=1,
        threads=0,
        timeout_s=timeout_s,
    )
    return report


def _require(run: TrainingRun, implementation: Implementation) -> None:
    """UserError for a run that cannot be measured, and for one of a GPU that this machine lacks."""
    require_measurable(run, implementation)
    if run.cluster.gpu.kind != "cpu":
        require_gpu_of(run)


def of_one_gpu(run: TrainingRun, result: Mapping[str, Any]) -> Measurement:
    """The measurement in what the worker of a GPU wrote."""
    return Measurement(
        run=run.name,
        implementation="torch",
        step_times_us=tuple(wall_s * 1e6 for wall_s in result["wall_s"]),
        others_shares=(0.0,) * len(result["wall_s"]),
        losses=tuple(result["losses"]),
        tokens_per_step=run.batch.global_ * run.batch.seq_len,
        parameters_per_rank=(result["parameters"],),
        threads=run.cluster.threads,
        versions=dict(result["versions"]),
        settings=settings_of(run),
        device=DeviceRecord(**result["device"]),
        references=(References(**result["references"]),) if "references" in result else (),
    )


def measure_interleaved(
    cases: Sequence[tuple[TrainingRun, Implementation]],
    *,
    rounds: int,
    steps_per_round: int | None,
    progress: Callable[[str], None],
    kept: KeptRounds[Measurement] | None = None,
) -> list[Measurement | None]:
    """One measurement per run, in their order, over the steps of all rounds (`in_turns`); None for a run that failed, which `progress`
    reports.

    Every run is checked before the first starts: UserError for one that cannot be measured.
    """
    for run, implementation in cases:
        _require(run, implementation)

    def measured(case: tuple[TrainingRun, Implementation]) -> Measurement | None:
        run, implementation = case
        try:
            return measure(run, steps=steps_per_round, implementation=implementation)
        except UserError as error:
            progress(f"left out: {error}")
            return None

    def words(result: Measurement) -> str:
        return f"{result.run} {duration(result.median_us)}{' (noisy)' if result.noise else ''}"

    found = in_turns(cases, rounds, measured, words, progress, kept)
    return [pool(results) if results else None for results in found]


def rounds_kept(
    cases: Sequence[tuple[TrainingRun, Implementation]], *, rounds: int, steps_per_round: int | None
) -> KeptRounds[Measurement]:
    """The rounds kept of an interrupted `measure_interleaved` of the same runs; none if any run or count differs."""
    runs = [[dump_run(run), implementation] for run, implementation in cases]
    return KeptRounds.of([runs, rounds, steps_per_round], Measurement)


def summarize(
    run: TrainingRun, implementation: Implementation, result: Mapping[str, Any], *, warmup: int
) -> Measurement:
    """The measurement in what the worker wrote: rank 0's clock, the CPU time of all ranks, the losses of those that know."""
    ranks = result["ranks"]
    usage = usage_of(ranks)[warmup:]
    return Measurement(
        run=run.name,
        implementation=implementation,
        step_times_us=tuple(step.wall_s * 1e6 for step in usage),
        others_shares=tuple(others_shares_here(usage)),
        losses=tuple(mean_known(losses) for losses in zip(*(rank["losses"] for rank in ranks), strict=True)),
        traced_us=tuple(wall * 1e6 for wall in ranks[0].get("traced_s", ())),
        tokens_per_step=run.batch.global_ * run.batch.seq_len,
        parameters_per_rank=tuple(rank["parameters"] for rank in ranks),
        threads=run.cluster.threads,
        versions=dict(result["versions"]),
        references=(References(**result["references"]),),
        settings=settings_of(run),
    )


def mean_known(losses: Sequence[float]) -> float:
    """Mean over the ranks that know the loss; the others hold NaN."""
    known = [loss for loss in losses if not math.isnan(loss)]
    return sum(known) / len(known) if known else math.nan


# The first plans of a search, measured in turns.

ROUNDS = 3
"""Turns in which plans are measured, so that a slow spell of the machine falls on all alike."""


def measured_plans(answer: Answer, count: int, report: Callable[[str], None]) -> Answer:
    """The answer with the measured steps of its first `count` plans that can be measured here; `report` is called with the reason why
    others cannot."""
    runs, refusals = {}, []
    for place, plan in enumerate(answer.plans, 1):
        run = replace(plan.prediction.run, name=f"plan {place}")
        try:
            require_measurable(run, "torch")
        except UserError as error:
            refusals.append(str(error))
            continue
        runs[place] = run
        if len(runs) == count:
            break
    for refusal in refusals:
        report(f"left out: {refusal}")
    if not runs:  # what the search found is worth more than a refusal
        return answer
    results = measure_interleaved(
        [(run, "torch") for run in runs.values()], rounds=ROUNDS, steps_per_round=None, progress=report
    )
    medians = {place: result.median_us for place, result in zip(runs, results, strict=True) if result}
    return replace(answer, measured_us=tuple(medians.get(place) for place in range(1, max(runs) + 1)))
