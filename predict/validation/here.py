"""Runs predicted first and then trained for real in interleaved rounds, on this machine's CPU or its GPU."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from predict import one_batch
from predict.interval import Interval
from predict.measurement.gpu_steps import TIMED, WARM_UP
from predict.measurement.measurement import DeviceRecord, Measurement
from predict.measurement.pace import Pace, pace_over
from predict.measurement.real_step import WARMUP, measure_interleaved, rounds_kept
from predict.measurement.requirements import Implementation
from predict.run.training_run import TrainingRun
from predict.serialise import picked, version_of
from predict.step.prediction import Prediction
from predict.validation.compared import Compared, mean_or_none, scores
from sampling.errors import InfeasibleError, UserError
from sampling.files.places import CONFIGS
from sampling.number_text import count
from sampling.units import SECOND_US


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationRow(Compared):
    """One run: its prediction, made first, and the median of its measured steps, in µs."""

    run: str
    plan: str
    measured_low_us: float
    measured_high_us: float
    calls_half_width: float
    """Half-width in log time at 90 % that the bounds of the calls alone leave the prediction."""
    steps: int
    dropped_steps: int
    """Steps that other processes disturbed."""
    noise: str = ""
    """The kind of noise of the steps, with which the error says little; empty for quiet ones."""
    device: DeviceRecord | None = None
    """The GPU that trained; None for a CPU."""
    predicted_allocated_bytes: float | None = None
    """Predicted peak of the tensors, to compare with the device's; None for a CPU."""
    pace: Pace | None = None
    """The machine's pace beside the steps; None where the profile's rows do not know theirs."""
    feasible: bool = True
    """Whether the expected peak of memory fits the device."""

    @property
    def noisy(self) -> bool:
        return bool(self.noise)

    @property
    def error_at_pace(self) -> float | None:
        """The error of the prediction at the pace beside the steps and with what other work took from them: that of the models alone."""
        return self.pace.of_models(self.error) if self.pace else None

    @property
    def memory(self) -> Compared | None:
        """The peak of the tensors, in bytes; None where it was not measured."""
        if self.device is None or not self.device.peak_allocated_bytes or self.predicted_allocated_bytes is None:
            return None
        predicted = Interval.exactly(self.predicted_allocated_bytes)
        return Compared(predicted=predicted, measured=self.device.peak_allocated_bytes)


def validation_json(rows: Sequence[ValidationRow]) -> dict[str, Any]:
    """The rows and their summary as `--json` prints them and `data/published/` keeps them."""
    of_models = mean_error_at_pace(rows)
    return {
        "version": version_of("validate"),
        "rows": [_row_json(row) for row in rows],
        "summary": picked(scores(rows), "runs=rows mean_error=mean worst_error=worst bias coverage")
        | {"dropped_steps": sum(row.dropped_steps for row in rows), "noisy_runs": sum(row.noisy for row in rows)}
        | ({} if of_models is None else {"mean_error_at_pace": of_models}),
    }


def mean_error_at_pace(rows: Sequence[ValidationRow]) -> float | None:
    """Mean size of the errors at the pace beside the steps; None where no row knows it."""
    return mean_or_none(abs(row.error_at_pace) for row in rows if row.error_at_pace is not None)


def _row_json(row: ValidationRow) -> dict[str, Any]:
    return (
        picked(row, ROW)
        | (picked(row, OF_DEVICE) if row.device else {})
        | ({"pace": row.pace.to_json(), "error_at_pace": row.error_at_pace} if row.pace else {})
    )


ROW = (
    "run plan predicted_us=predicted measured_us measured_p10_us=measured_low_us measured_p90_us=measured_high_us"
    " calls_half_width steps dropped_steps noisy noise feasible error covered"
)
OF_DEVICE = "device predicted_allocated_bytes"
STEPS_PER_ROUND = 8
"""Timed steps of one measurement on a CPU; on a GPU as many as fill a span of time."""
START_S, START_GPU_S = 8.0, 10.0
"""Time that a measurement takes to start and to end, on a GPU with the compiling of layers: assumed, to say how long a
validation takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidatedRun:
    """A config whose prediction is compared with a real step, and the implementation that is trained."""

    config: Path
    implementation: Implementation


@dataclass(frozen=True, kw_only=True, slots=True)
class Validation:
    """The predictions of all runs, the rows of those that were measured, and the names of those that failed."""

    predictions: Sequence[Prediction]
    rows: list[ValidationRow]
    failed: list[str]


def predictions_of(runs: Sequence[ValidatedRun], overrides: Sequence[str] = ()) -> list[Prediction]:
    """The prediction of each run, before any is measured. ConfigError for a config that is wrong."""
    return [one_batch(each.config, overrides) for each in runs]


def notes_on(predictions: Sequence[Prediction]) -> list[str]:
    """Remarks on the rows that the predictions rest on, which a reader needs next to them."""
    return list(dict.fromkeys(note for each in predictions for note in each.provenance["notes"]))


def against_real_steps(
    runs: Sequence[ValidatedRun], predicted: Sequence[Prediction], *, rounds: int, report: Callable[[str], None]
) -> Validation:
    """Measure all runs `rounds` times in turn, so that a slow spell falls on all alike, and compare them with their predictions.

    A run that fails is reported and left out, as is one that does not fit the GPU. Raises UserError for a run that cannot run
    here, and where every run fails; InfeasibleError where none fits.
    """
    pairs = list(zip(runs, predicted, strict=True))
    fitting = [(each, prediction) for each, prediction in pairs if _fits(prediction)]
    for prediction in predicted:
        if not _fits(prediction):
            report(f"left out, since it does not fit: {prediction.run.name}")
    if not fitting:
        raise InfeasibleError(f"{len(runs)} runs: none fits the memory of {predicted[0].run.cluster.gpu.name}")
    cases = [(prediction.run, each.implementation) for each, prediction in fitting]
    steps = STEPS_PER_ROUND if cases[0][0].cluster.gpu.kind == "cpu" else None
    kept = rounds_kept(cases, rounds=rounds, steps_per_round=steps)
    before = f"; {len(kept.measured)} of them kept from before" if kept.measured else ""
    wait = _wait([prediction for _, prediction in fitting], rounds=rounds)
    report(
        f"{rounds * len(cases)} measurements, {wait} in all: {rounds} of each run, and up to {REPEATS} more of one that is noisy{before}"
    )
    try:
        measured = measure_interleaved(cases, rounds=rounds, steps_per_round=steps, progress=report, kept=kept)
    except BaseException:
        if kept.measured:
            report(
                f"kept so far: {len(kept.measured)} of {rounds * len(cases)} measurements, in {kept.path}; the same command goes on from there"
            )
        raise
    failed = [run.name for (run, _), result in zip(cases, measured, strict=True) if result is None]
    if len(failed) == len(cases):
        raise UserError(f"none of {len(cases)} runs could be measured; the reasons stand above")
    if not failed:
        kept.remove()
    final = [result and _repeated(case, result, steps, report) for case, result in zip(cases, measured, strict=True)]
    rows = [row_of(*pair, result) for pair, result in zip(fitting, final, strict=True) if result is not None]
    return Validation(predictions=predicted, rows=rows, failed=failed)


REPEATS = 2
"""Most rounds by which a noisy measurement is repeated."""


def _repeated(
    case: tuple[TrainingRun, Implementation], noisy: Measurement, steps: int | None, report: Callable[[str], None]
) -> Measurement:
    """The measurement itself where it is not noisy, else the first quiet one of REPEATS more rounds, where there is one."""
    for _ in range(REPEATS if noisy.noise else 0):
        report(f"{noisy.run}: noisy, measured again")
        (again,) = measure_interleaved([case], rounds=1, steps_per_round=steps, progress=report)
        if again is not None and not again.noise:
            return again
    if noisy.noise:
        report(f"{noisy.run}: noisy each time; the first measurement counts")
    return noisy


def _fits(prediction: Prediction) -> bool:
    """Whether a GPU has room for the run; a CPU's memory is not checked."""
    return prediction.run.cluster.gpu.kind == "cpu" or prediction.feasible


def _wait(predicted: Sequence[Prediction], *, rounds: int) -> str:
    """The time that all measurements take, in words, from the intervals of their steps: a slow machine slows all alike."""
    low_s = rounds * sum(_measuring_s(each, each.step_time.low_us) for each in predicted)
    high_s = rounds * sum(_measuring_s(each, each.step_time.high_us) for each in predicted)
    return f"{count(low_s)} to {count(high_s)} s" if round(low_s) < round(high_s) else f"about {count(high_s)} s"


def _measuring_s(prediction: Prediction, step_us: float) -> float:
    """Seconds that one measurement of the run takes, where its step takes `step_us`."""
    step_s = step_us / SECOND_US
    if prediction.run.cluster.gpu.kind == "cpu":
        return START_S + (WARMUP + STEPS_PER_ROUND) * step_s
    return START_GPU_S + sum(max(span.seconds, span.steps * step_s) for span in (WARM_UP, TIMED))


def row_of(validated: ValidatedRun, prediction: Prediction, measured: Measurement) -> ValidationRow:
    run = prediction.run
    return ValidationRow(
        run=run.name if validated.implementation == "torch" else f"{run.name} ({validated.implementation})",
        plan=", ".join(_choices(run)),
        predicted=prediction.step_time,
        measured=measured.median_us,
        measured_low_us=measured.p10_us,
        measured_high_us=measured.p90_us,
        calls_half_width=prediction.calls_half_width,
        steps=len(measured.step_times_us),
        dropped_steps=measured.dropped_steps,
        noise=measured.noise,
        feasible=prediction.feasible,
        device=measured.device,
        pace=pace_over(prediction, measured.references),
        predicted_allocated_bytes=prediction.memory.worst.counted if measured.device else None,
    )


def _choices(run: TrainingRun) -> list[str]:
    """The choices that distinguish the run from others, in words."""
    plan, execution = run.plan, run.execution
    degrees = [
        f"{name} {getattr(plan, name)}"
        for name in ("tp", "pp", "dp", "zero")
        if getattr(plan, name) > int(name != "zero")
    ]
    alone = "1 process" if execution.whole_layers else f"{execution.framework}, {execution.attention}"
    choices = [*(degrees or [alone]), *(["sp"] if plan.sp else []), *([plan.schedule] if plan.pp > 1 else [])]
    return [*choices, *([f"recompute {plan.recompute}"] * (plan.recompute != "none"))]


def runs_of_this_machine() -> list[ValidatedRun]:
    """The runs of `configs/runs/this-machine`, and those of the transformers library's Llama where it is installed."""
    folder = CONFIGS / "runs"
    found = [
        ValidatedRun(config=path, implementation="torch") for path in sorted((folder / "this-machine").glob("*.yml"))
    ]
    if importlib.util.find_spec("transformers") is not None:
        others = sorted((folder / "transformers").glob("*.yml"))
        found += [ValidatedRun(config=path, implementation="transformers") for path in others]
    return found
