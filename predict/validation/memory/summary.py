"""The errors of measured memory summed up by source and counter, and by class; families of alike runs weigh the same."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import Any

from predict.serialise import version_of
from predict.validation.memory.comparison import PEAK, MemoryComparison
from sampling.units import GB

SMALL_BYTES = 4 * GB
"""Peak up to which constants and the loss's buffers rule a run's memory."""


def summary(comparisons: Sequence[MemoryComparison]) -> Iterator[dict[str, Any]]:
    """The figures of each source, or kind of model of a table that names kinds, by counter; state apart from peaks."""
    predicted = [one for one in comparisons if one.predicted_bytes]
    for key in sorted(set(map(_key, predicted))):
        yield figures(list(key), [one for one in predicted if _key(one) == key])


def _key(one: MemoryComparison) -> tuple[str, ...]:
    source = one.row.text("kind") or one.row.text("source_id")
    return (source, one.counter) if one.figure == PEAK else (source, one.counter, one.figure)


def classes(comparisons: Sequence[MemoryComparison]) -> list[dict[str, Any]]:
    """The figures of each class: state or peak, its counter, and its size."""
    predicted = [one for one in comparisons if one.predicted_bytes]
    found = sorted({(one.figure, one.counter, _size(one)) for one in predicted}, reverse=True)
    return [
        figures(list(key), [one for one in predicted if (one.figure, one.counter, _size(one)) == key]) for key in found
    ]


def _size(one: MemoryComparison) -> str:
    return "up to 4 GB" if one.measured_bytes <= SMALL_BYTES else "above 4 GB"


def figures(key: list[str], comparisons: Sequence[MemoryComparison]) -> dict[str, Any]:
    """Rows, families and distinct figures, mean and median error in percent, bias, and rows wrongly called FITS.

    A family, by the column of that name, counts once: by the means of its errors. Without the column each row is one.
    """
    families: dict[str, list[float]] = {}
    for one in comparisons:
        families.setdefault(one.row.text("family") or f"row {one.row.row_id}", []).append(one.error)
    sizes = [fmean(map(abs, errors)) for errors in families.values()]
    return {
        "key": key,
        "rows": len(comparisons),
        "families": len(families),
        "distinct": len({one.measured_bytes for one in comparisons}),
        "mean_error_percent": 100 * fmean(sizes),
        "median_error_percent": 100 * median(sizes),
        "bias_percent": 100 * fmean(fmean(errors) for errors in families.values()),
        "fits_in_vain": sum(one.wrongly_fits for one in comparisons),
    }


def as_json(comparisons: Sequence[MemoryComparison]) -> dict[str, Any]:
    return {
        "version": version_of("validate-memory"),
        "rows": [_row_json(one) for one in comparisons],
        "summary": list(summary(comparisons)),
        "classes": classes(comparisons),
    }


def _row_json(one: MemoryComparison) -> dict[str, Any]:
    return {
        "row_id": one.row.row_id,
        "status": "predicted" if one.predicted_bytes else "not_expressible",
        "why": one.why,
        "figure": one.figure,
        "counter": one.counter,
        "predicted_bytes": one.predicted_bytes,
        "measured_bytes": None if math.isnan(one.measured_bytes) else one.measured_bytes,
        "error": one.error if one.predicted_bytes else None,
        "verdict": one.verdict or None,
    }
