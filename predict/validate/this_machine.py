"""Runs of many shapes and plans on this machine, predicted first and then trained for real in interleaved rounds."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from predict import one_batch
from predict.measure.kept_rounds import KeptRounds
from predict.measure.measurement import Measurement
from predict.measure.real_step import WARMUP, measure_interleaved
from predict.measure.requirements import Implementation
from predict.step.prediction import Prediction
from predict.validate.validation_rows import ValidationRow
from sampling.files.places import CONFIGS

STEPS_PER_ROUND = 8
START_S = 8.0
"""Time that the ranks of a measurement take to start and to end, to tell how long a validation takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidatedRun:
    """A config whose prediction is compared with a real step, and the implementation that is trained."""

    config: Path
    implementation: Implementation


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


def predictions_of(runs: Sequence[ValidatedRun], overrides: Sequence[str] = ()) -> list[Prediction]:
    """The prediction of each run, before any is measured. ConfigError for a config that is wrong."""
    return [one_batch(each.config, overrides) for each in runs]


def notes_on(predictions: Sequence[Prediction]) -> list[str]:
    """Remarks on the rows that the predictions rest on, which a reader needs beside them."""
    return list(dict.fromkeys(note for each in predictions for note in each.provenance["notes"]))


def validate(
    runs: Sequence[ValidatedRun], predicted: Sequence[Prediction], *, rounds: int, tell: Callable[[str], None]
) -> list[ValidationRow]:
    """Measure all runs `rounds` times in turn, so that a slow spell falls on all alike, and hold them against their predictions.

    Raises UserError for a run that cannot run here.
    """
    cases = [(prediction.run, each.implementation) for each, prediction in zip(runs, predicted, strict=True)]
    kept = KeptRounds.of(cases, rounds=rounds, steps_per_round=STEPS_PER_ROUND)
    step_s = sum(prediction.median_us for prediction in predicted) / 1e6
    about_s = rounds * (len(runs) * START_S + (WARMUP + STEPS_PER_ROUND) * step_s)
    before = f"; {len(kept.measured)} of them kept from before" if kept.measured else ""
    tell(f"{rounds * len(runs)} measurements, about {about_s:.0f} s in all{before}")
    try:
        measured = measure_interleaved(cases, rounds=rounds, steps_per_round=STEPS_PER_ROUND, progress=tell, kept=kept)
    except BaseException:
        if kept.measured:
            tell(
                f"kept so far: {len(kept.measured)} of {rounds * len(runs)} measurements, in {kept.path}; the same command goes on from there"
            )
        raise
    kept.remove()
    return [_row(*each) for each in zip(runs, predicted, measured, strict=True)]


def _row(validated: ValidatedRun, prediction: Prediction, measured: Measurement) -> ValidationRow:
    run = prediction.run
    plan = run.plan
    degrees = [
        f"{name} {getattr(plan, name)}"
        for name in ("tp", "pp", "dp", "zero")
        if getattr(plan, name) > int(name != "zero")
    ]
    choices = [*(degrees or ["1 process"]), *(["sp"] if plan.sp else []), *([plan.schedule] if plan.pp > 1 else [])]
    choices += [f"recompute {plan.recompute}"] * (plan.recompute != "none")
    return ValidationRow(
        run=run.name if validated.implementation == "torch" else f"{run.name} ({validated.implementation})",
        plan=", ".join(choices),
        predicted=prediction.step_time,
        measured_us=measured.median_us,
        measured_low_us=measured.p10_us,
        measured_high_us=measured.p90_us,
        steps=len(measured.step_times_us),
        dropped_steps=measured.dropped_steps,
        noisy=measured.noisy,
        feasible=prediction.feasible,
    )
