"""Measured memory of runs held against predictions: `predict validate memory`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from predict import estimate
from predict.memory.estimate import MemoryEstimate, memory_of
from predict.memory.peak import RankMemory
from predict.serialise import version_of
from predict.validation import megatron_tests
from predict.validation.megatron_tests import is_megatron_test
from predict.validation.published_row import NotExpressibleError, PublishedRow
from predict.validation.published_runs import candidates
from sampling.progress import Progress
from sampling.units import GB, GIB

# Measured memory of runs beside predictions: each figure of a row by its own counter.

STATE, PEAK = "state", "peak"
FIGURES = ("peak_mem_gib", "peak_mem_gb", megatron_tests.STATE, megatron_tests.PEAK)
"""Columns that state memory."""
COUNTERS: dict[str, Callable[[RankMemory], float]] = {
    "allocated": lambda rank: rank.allocated,
    "reserved": lambda rank: rank.reserved,
    "nvidia-smi": lambda rank: rank.peak,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryComparison:
    """A figure of a row beside its prediction by the same counter, or the reason why there is none."""

    row: PublishedRow
    figure: str = PEAK
    """PEAK, or STATE: what stays allocated between steps."""
    counter: str
    measured_bytes: float
    why: str = ""
    predicted_bytes: float | None = None
    verdict: str = ""

    @property
    def error(self) -> float:
        assert self.predicted_bytes is not None
        return self.predicted_bytes / self.measured_bytes - 1

    @property
    def wrongly_fits(self) -> bool:
        """Whether FITS was predicted for a figure that was measured above the device's memory."""
        capacity = self.row.number("gpu_mem_gb")
        return self.verdict == "FITS" and capacity is not None and self.measured_bytes > capacity * GIB


def compare_memory(
    rows: Sequence[PublishedRow], progress: Progress = lambda done, total, name: None
) -> list[MemoryComparison]:
    """Predict every row that states a peak, and those of Megatron-LM's tests, which state two figures."""
    stated = [row for row in rows if any(map(row.text, FIGURES))]
    comparisons: list[MemoryComparison] = []
    for done, row in enumerate(stated, 1):
        comparisons += _compare_test(row) if is_megatron_test(row) else [_compare_one(row)]
        progress(done, len(stated), row.row_id)
    return comparisons


def counter_of(row: PublishedRow) -> str:
    """Which counter the column `mem_counter` or a row's note names: torch's allocated or reserved, else the device's own."""
    stated, note = row.text("mem_counter"), row.text("mem_note").lower()
    if stated:
        return stated
    if re.search(r"max_allocated|^allocated", note):
        return "allocated"
    return "reserved" if re.search(r"peak reserved|max_reserved|^reserved", note) else "nvidia-smi"


def _measured_bytes(row: PublishedRow) -> float | None:
    """The peak, in the unit of its column unless the note says GB; None for text that is not a size."""
    gib, gb = row.number("peak_mem_gib"), row.number("peak_mem_gb")
    if gib and re.match(r"max GB\b", row.text("mem_note")):
        gib, gb = None, gib
    size = gib * GIB if gib else (gb or 0.0) * GB
    return size if size > 0 else None


def _compare_one(row: PublishedRow) -> MemoryComparison:
    counter, measured_bytes = counter_of(row), _measured_bytes(row)
    if measured_bytes is None:
        why = f"peak_mem_gib: {row.text('peak_mem_gib') or row.text('peak_mem_gb')} is not a size"
        return MemoryComparison(row=row, counter=counter, measured_bytes=math.nan, why=why)
    if counter not in COUNTERS:
        why = f"mem_counter: {counter} is not one of {', '.join(COUNTERS)}"
        return MemoryComparison(row=row, counter=counter, measured_bytes=measured_bytes, why=why)
    try:
        estimates = [estimate(run).memory for run in candidates(row, timed=False).runs]
    except NotExpressibleError as error:
        return MemoryComparison(row=row, counter=counter, measured_bytes=measured_bytes, why=str(error))
    predicted = [_peak(estimate, counter) for estimate in estimates]
    verdicts = [estimate.verdict for estimate in estimates]
    return MemoryComparison(
        row=row,
        counter=counter,
        measured_bytes=measured_bytes,
        predicted_bytes=math.exp(fmean(map(math.log, predicted))),
        verdict=max(verdicts, key=("FITS", "AT RISK", "OOM").index),
    )


def _compare_test(row: PublishedRow) -> list[MemoryComparison]:
    """Both figures of a test's last global rank, which is of the last pipeline rank."""
    measured = {STATE: row.number(megatron_tests.STATE), PEAK: row.number(megatron_tests.PEAK)}
    predicted: dict[str, float | None] = dict.fromkeys(measured)
    why = verdict = ""
    try:
        told = memory_of(megatron_tests.run_of(row))
        predicted = {STATE: told.ranks[-1].between_steps, PEAK: told.ranks[-1].allocated}
        verdict = told.verdict
    except NotExpressibleError as error:
        why = str(error)
    return [
        MemoryComparison(
            row=row,
            figure=figure,
            counter="allocated",
            measured_bytes=size,
            why=why,
            predicted_bytes=predicted[figure],
            verdict=verdict,
        )
        for figure, size in measured.items()
        if size
    ]


def _peak(estimate: MemoryEstimate, counter: str) -> float:
    return max(COUNTERS[counter](rank) for rank in estimate.ranks)


# The errors of measured memory summed up by source and counter, and by class; families of alike runs weigh the same.

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


def memory_json(comparisons: Sequence[MemoryComparison]) -> dict[str, Any]:
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
