"""The errors of published runs, told by source, GPU, kind of model, scale and class; repeats of a configuration count once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from statistics import fmean, median
from typing import Any

from predict.serialise import version_of
from predict.validation.published.comparison import Comparison
from predict.validation.published.completeness import CLASSES
from predict.validation.published.constant_mfu import SourceResult, beside_constant_mfu
from predict.validation.published.repeats import configurations
from predict.validation.published.row import PublishedRow

PREDICTED, NOT_EXPRESSIBLE = "predicted", "not_expressible"


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


def summary(counted: Sequence[Comparison]) -> Iterator[dict[str, Any]]:
    """The figures of all configurations, and of those of each source, GPU, kind, precision, scale and main basis."""
    yield figures(["all"], counted)
    for key, of in KEYS.items():
        for value in sorted(set(map(of, counted))):
            yield figures([key, value], [one for one in counted if of(one) == value])
    for source in sorted(set(map(KEYS["source"], counted))):
        for kind in ("dense", "MoE"):
            for precision in ("16 bit", "fp8"):
                matching = [
                    one
                    for one in counted
                    if (KEYS["source"](one), KEYS["kind"](one), KEYS["precision"](one)) == (source, kind, precision)
                ]
                if matching:
                    yield figures([source, kind, precision], matching)


def classes(counted: Sequence[Comparison]) -> list[dict[str, Any]]:
    """The figures of each class that has configurations."""
    found = ((name, [one for one in counted if one.judged_as == name]) for name in CLASSES)
    return [figures([name], matching) for name, matching in found if matching]


def figures(key: list[str], counted: Sequence[Comparison]) -> dict[str, Any]:
    """Configurations (`rows`) and their measurements, mean and median error in percent, signed bias, the share of intervals
    that contain the measurement, and the intervals' mean half-width in log time."""
    errors = [one.error for one in counted]
    if not errors:
        return {"key": key, "rows": 0}
    return {
        "key": key,
        "rows": len(errors),
        "measurements": sum(len(one.repeats) for one in counted),
        **error_percentages(errors),
        "coverage": fmean(one.covered for one in counted),
        "log_half_width": fmean(one.log_half_width for one in counted),
    }


def error_percentages(errors: Sequence[float]) -> dict[str, float]:
    """Mean and median of absolute errors and the mean signed error, all in percent."""
    return {
        "mean_error_percent": 100 * fmean(map(abs, errors)),
        "median_error_percent": 100 * median(map(abs, errors)),
        "bias_percent": 100 * fmean(errors),
    }


def as_json(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Every row's comparison; figures count each configuration once."""
    counted = configurations(comparisons)
    return {
        "version": version_of("validate-published"),
        "rows": [_row_json(one) for one in comparisons],
        "configurations": [
            {
                "rows": list(one.repeats),
                "class": one.judged_as,
                "measured_us": one.measured_us,
                "error": one.error,
                "covered": one.covered,
            }
            for one in counted
        ],
        "summary": list(summary(counted)),
        "sources": [_source_json(one) for one in beside_constant_mfu(counted)],
        "classes": classes(counted),
    }


def _source_json(one: SourceResult) -> dict[str, Any]:
    return {
        "source": one.source,
        "rows": one.configurations,
        "mean_error_percent": 100 * one.error,
        "constant_mfu_error_percent": None if math.isnan(one.constant_mfu_error) else 100 * one.constant_mfu_error,
        "order": asdict(one.order),
        "order_of_one_work": asdict(one.order_of_one_work),
    }


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
