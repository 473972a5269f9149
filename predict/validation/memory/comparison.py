"""Measured memory of runs beside predictions: each figure of a row by its own counter."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from predict import estimate
from predict.memory.estimate import MemoryEstimate, memory_of
from predict.memory.peak import RankMemory
from predict.validation.memory import megatron_tests
from predict.validation.memory.megatron_tests import is_megatron_test
from predict.validation.published.row import NotExpressibleError, PublishedRow
from predict.validation.published.runs import candidates
from sampling.progress import Progress
from sampling.units import GB, GIB

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
