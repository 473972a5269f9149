"""Measured peaks of published runs beside predictions: `predict validate memory`. Each counter is summarised by itself."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from predict import estimate
from predict.memory.estimate import MemoryEstimate
from predict.memory.rank_memory import RankMemory
from predict.validate.published.row import NotExpressibleError, PublishedRow
from predict.validate.published.runs import candidates
from predict.validate.published.summary import error_percentages
from sampling.progress import Progress

VERSION = 1
GIB, GB = 2**30, 1e9
COUNTERS: dict[str, Callable[[RankMemory], float]] = {
    "allocated": lambda rank: rank.allocated,
    "reserved": lambda rank: rank.reserved,
    "nvidia-smi": lambda rank: rank.peak,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryComparison:
    """A row's peak beside its prediction by the same counter, or the reason why there is none."""

    row: PublishedRow
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
        """Whether FITS was predicted for a peak that was measured above the device's memory."""
        capacity = self.row.number("gpu_mem_gb")
        return self.verdict == "FITS" and capacity is not None and self.measured_bytes > capacity * GIB


def compare_memory(
    rows: Sequence[PublishedRow], progress: Progress = lambda done, total, name: None
) -> list[MemoryComparison]:
    """Predict every row that states a peak."""
    stated = [row for row in rows if row.text("peak_mem_gib") or row.text("peak_mem_gb")]
    comparisons = []
    for done, row in enumerate(stated, 1):
        comparisons.append(_compare_one(row))
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


def _peak(estimate: MemoryEstimate, counter: str) -> float:
    return max(COUNTERS[counter](rank) for rank in estimate.ranks)


def summary(comparisons: Sequence[MemoryComparison]) -> Iterator[dict[str, Any]]:
    """One row per source and counter: rows, distinct peaks, mean and median error in percent, bias, and rows wrongly called FITS."""
    predicted = [one for one in comparisons if one.predicted_bytes]
    for key in sorted({(one.row.text("source_id"), one.counter) for one in predicted}):
        of_key = [one for one in predicted if (one.row.text("source_id"), one.counter) == key]
        errors = [one.error for one in of_key]
        yield {
            "key": list(key),
            "rows": len(errors),
            "distinct": len({one.measured_bytes for one in of_key}),
            **error_percentages(errors),
            "fits_in_vain": sum(one.wrongly_fits for one in of_key),
        }


def as_json(comparisons: Sequence[MemoryComparison]) -> dict[str, Any]:
    return {"version": VERSION, "rows": [_row_json(one) for one in comparisons], "summary": list(summary(comparisons))}


def _row_json(one: MemoryComparison) -> dict[str, Any]:
    return {
        "row_id": one.row.row_id,
        "status": "predicted" if one.predicted_bytes else "not_expressible",
        "why": one.why,
        "counter": one.counter,
        "predicted_bytes": one.predicted_bytes,
        "measured_bytes": None if math.isnan(one.measured_bytes) else one.measured_bytes,
        "error": one.error if one.predicted_bytes else None,
        "verdict": one.verdict or None,
    }
