"""Every published row predicted and compared, with error and signed bias by source, GPU, kind of model and scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from predict import estimate
from predict.prices.calibration import calibrated
from predict.run.calibration import Calibration
from predict.step.interval import Interval
from predict.step.prediction import Prediction
from predict.validate.published.row import NotExpressibleError, PublishedRow
from predict.validate.published.runs import candidates
from sampling.errors import InfeasibleError
from sampling.progress import Progress

VERSION = 1
PREDICTED, NOT_EXPRESSIBLE = "predicted", "not_expressible"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A row beside its prediction, or the reason why there is none. `kind` is dense or MoE; `error` is predicted over measured,
    less 1."""

    row: PublishedRow
    why: str
    kind: str = ""
    predicted: Interval | None = None
    sources: dict[str, float] | None = None

    @property
    def measured_us(self) -> float:
        return self.row.measured_us or math.nan

    @property
    def error(self) -> float:
        assert self.predicted is not None
        return self.predicted.median_us / self.measured_us - 1

    @property
    def covered(self) -> bool:
        assert self.predicted is not None
        return self.predicted.low_us <= self.measured_us <= self.predicted.high_us


def compare(
    rows: Sequence[PublishedRow],
    *,
    profile: str = "",
    calibration: Calibration | None = None,
    progress: Progress = lambda done, total, name: None,
) -> list[Comparison]:
    """Predict every row, with the samples of `profile` and the terms of `calibration` where they are named."""
    comparisons = []
    for done, row in enumerate(rows, 1):
        comparisons.append(_compare_one(row, profile, calibration))
        progress(done, len(rows), row.row_id)
    return comparisons


def _compare_one(row: PublishedRow, profile: str, calibration: Calibration | None) -> Comparison:
    try:
        found = candidates(row, profile)
        runs = [calibrated(run, calibration) if calibration else run for run in found.runs]
        estimates = [estimate(run) for run in runs]
    except (NotExpressibleError, InfeasibleError) as error:
        return Comparison(row=row, why=str(error))
    return Comparison(
        row=row,
        why="; ".join(found.assumed),
        kind="MoE" if runs[0].model.experts else "dense",
        predicted=mixture(estimates),
        sources=_mean_sources(estimates),
    )


def mixture(estimates: Sequence[Prediction]) -> Interval:
    """One interval for equally likely runs: the geometric mean of their medians, within the widest of their bounds."""
    medians = [one.step_time.median_us for one in estimates]
    return Interval(
        median_us=math.exp(fmean(map(math.log, medians))),
        low_us=min(one.step_time.low_us for one in estimates),
        high_us=max(one.step_time.high_us for one in estimates),
    )


def _mean_sources(estimates: Sequence[Prediction]) -> dict[str, float]:
    return {name: fmean(one.sources[name] for one in estimates) for name in estimates[0].sources}


def _precision(row: PublishedRow) -> str:
    text = row.text("precision").lower()
    return "fp8" if "fp8" in text or "float8" in text else "16 bit"


def _scale(row: PublishedRow) -> str:
    gpus = row.number("n_gpus") or 0
    return next((f"up to {most}" for most in (8, 64, 512) if gpus <= most), "more than 512")


def _basis(one: Comparison) -> str:
    assert one.sources is not None
    return max(one.sources, key=lambda name: one.sources[name])  # type: ignore[index]


KEYS: dict[str, Callable[[Comparison], str]] = {
    "source": lambda one: one.row.text("source_id"),
    "gpu": lambda one: one.row.text("gpu"),
    "kind": lambda one: one.kind,
    "precision": lambda one: _precision(one.row),
    "gpus": lambda one: _scale(one.row),
    "rests on": _basis,
}


def summary(comparisons: Sequence[Comparison]) -> Iterator[dict[str, Any]]:
    """Rows, mean and median error in percent, signed bias, and the share of intervals that contain the measurement."""
    predicted = [one for one in comparisons if one.predicted]
    yield _figures(["all"], predicted)
    for key, of in KEYS.items():
        for value in sorted(set(map(of, predicted))):
            yield _figures([key, value], [one for one in predicted if of(one) == value])
    for source in sorted(set(map(KEYS["source"], predicted))):
        for kind in ("dense", "MoE"):
            for precision in ("16 bit", "fp8"):
                matching = [
                    one
                    for one in predicted
                    if (KEYS["source"](one), KEYS["kind"](one), KEYS["precision"](one)) == (source, kind, precision)
                ]
                if matching:
                    yield _figures([source, kind, precision], matching)


def _figures(key: list[str], comparisons: Sequence[Comparison]) -> dict[str, Any]:
    errors = [one.error for one in comparisons]
    if not errors:
        return {"key": key, "rows": 0}
    return {
        "key": key,
        "rows": len(errors),
        **error_percentages(errors),
        "coverage": fmean(one.covered for one in comparisons),
    }


def error_percentages(errors: Sequence[float]) -> dict[str, float]:
    """Mean and median of absolute errors and the mean signed error, all in percent."""
    return {
        "mean_error_percent": 100 * fmean(map(abs, errors)),
        "median_error_percent": 100 * median(map(abs, errors)),
        "bias_percent": 100 * fmean(errors),
    }


def as_json(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    return {"version": VERSION, "rows": [_row_json(one) for one in comparisons], "summary": list(summary(comparisons))}


def _row_json(one: Comparison) -> dict[str, Any]:
    predicted = one.predicted
    return {
        "row_id": one.row.row_id,
        "status": PREDICTED if predicted else NOT_EXPRESSIBLE,
        "why": one.why,
        "predicted_us": predicted
        and {"median": predicted.median_us, "low": predicted.low_us, "high": predicted.high_us},
        "measured_us": one.row.measured_us,
        "error": one.error if predicted else None,
        "sources": one.sources,
    }
