"""Measured memory of runs, each figure by its own counter, compared with predictions: `predict validate memory`."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeAlias

from predict import estimate
from predict.interval import Interval
from predict.memory.estimate import MemoryEstimate, memory_of
from predict.memory.peak import RankMemory
from predict.serialise import as_json, picked, version_of
from predict.validation import megatron_tests
from predict.validation.compared import Compared, Refused, ReliabilityBin, grouped, reliability, scores
from predict.validation.megatron_tests import is_megatron_test
from predict.validation.published_row import NotExpressibleError, PublishedRow
from predict.validation.published_runs import candidates
from sampling.progress import Progress, silent
from sampling.units import GB, GIB

STATE, PEAK = "state", "peak"
FIGURES = ("peak_mem_gib", "peak_mem_gb", megatron_tests.STATE, megatron_tests.PEAK)
"""Columns that state memory."""
COUNTERS: dict[str, Callable[[RankMemory], float]] = {
    "allocated": lambda rank: rank.counted,
    "reserved": lambda rank: rank.reserved,
    "nvidia-smi": lambda rank: rank.peak,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredMemory:
    """A figure of a run by its counter."""

    run: PublishedRow
    figure: str = PEAK
    """PEAK, or STATE: what stays allocated between steps."""
    counter: str
    size: float | None
    """Bytes; None where the row states no size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryComparison(Compared):
    """A figure of a row next to its prediction by the same counter, in bytes."""

    row: MeasuredMemory
    verdict: str
    fits_probability: float

    @property
    def exceeds(self) -> bool:
        """Whether the figure was measured above the device's memory."""
        capacity = self.row.run.number("gpu_mem_gb")
        return capacity is not None and self.measured > capacity * GIB

    @property
    def wrongly_fits(self) -> bool:
        """Whether FITS was predicted for such a figure."""
        return self.verdict == "FITS" and self.exceeds


MemoryOutcome: TypeAlias = MemoryComparison | Refused[MeasuredMemory]


def compare_memory(rows: Sequence[PublishedRow], progress: Progress = silent) -> list[MemoryOutcome]:
    """Predict every row that states a peak, and those of Megatron-LM's tests, which state two figures."""
    stated = [row for row in rows if any(map(row.text, FIGURES))]
    comparisons: list[MemoryOutcome] = []
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
    # prime-rl logs torch.cuda.max_memory_reserved (trainer/rl/train.py)
    return "reserved" if re.search(r"peak reserved|max_reserved|^reserved|^torch peak", note) else "nvidia-smi"


def _measured_bytes(row: PublishedRow) -> float | None:
    """The peak, in the unit of its column unless the note says GB; None for text that is not a size."""
    gib, gb = row.number("peak_mem_gib"), row.number("peak_mem_gb")
    if gib and re.match(r"max GB\b", row.text("mem_note")):
        gib, gb = None, gib
    size = gib * GIB if gib else (gb or 0.0) * GB
    return size if size > 0 else None


def _compare_one(row: PublishedRow) -> MemoryOutcome:
    counter = counter_of(row)
    memory = MeasuredMemory(run=row, counter=counter, size=_measured_bytes(row))
    if memory.size is None:
        text = row.text("peak_mem_gib") or row.text("peak_mem_gb")
        return Refused(row=memory, why=f"peak_mem_gib: {text} is not a size")
    if counter not in COUNTERS:
        return Refused(row=memory, why=f"mem_counter: {counter} is not one of {', '.join(COUNTERS)}")
    try:
        estimates = [estimate(run).memory for run in candidates(row, timed=False).runs]
    except NotExpressibleError as error:
        return Refused(row=memory, why=str(error))
    return MemoryComparison(
        row=memory,
        measured=memory.size,
        predicted=Interval.exactly(math.exp(fmean(math.log(_peak(each, counter)) for each in estimates))),
        verdict=max((each.verdict for each in estimates), key=("FITS", "AT RISK", "OOM").index),
        fits_probability=fmean(each.fits_probability for each in estimates),
    )


def _compare_test(row: PublishedRow) -> Iterator[MemoryOutcome]:
    """Both figures of a test's last global rank, which belongs to the last pipeline rank."""
    sizes = {STATE: row.number(megatron_tests.STATE), PEAK: row.number(megatron_tests.PEAK)}
    measured = [
        MeasuredMemory(run=row, figure=figure, counter="allocated", size=size) for figure, size in sizes.items() if size
    ]
    try:
        found = memory_of(megatron_tests.run_of(row))
    except NotExpressibleError as error:
        yield from (Refused(row=memory, why=str(error)) for memory in measured)
        return
    last = found.ranks[-1]
    predicted = {STATE: last.between_steps, PEAK: last.counted}
    for memory in measured:
        yield MemoryComparison(
            row=memory,
            measured=memory.size or math.nan,
            predicted=Interval.exactly(predicted[memory.figure]),
            verdict=found.verdict,
            fits_probability=found.fits_probability,
        )


def _peak(estimate: MemoryEstimate, counter: str) -> float:
    return max(COUNTERS[counter](rank) for rank in estimate.ranks)


SMALL_BYTES = 4 * GB
"""Peak up to which constants and the loss's buffers rule a run's memory."""


def memory_summary(comparisons: Sequence[MemoryOutcome]) -> list[dict[str, Any]]:
    """The figures of each source, or kind of model of a table that names kinds, by counter; state apart from peaks."""
    return [figures(list(key), found) for key, found in sorted(grouped(_predicted(comparisons), _key).items())]


def _predicted(comparisons: Sequence[MemoryOutcome]) -> list[MemoryComparison]:
    return [one for one in comparisons if isinstance(one, MemoryComparison)]


def _key(one: MemoryComparison) -> tuple[str, ...]:
    source = one.row.run.text("kind") or one.row.run.text("source_id")
    return (source, one.row.counter) if one.row.figure == PEAK else (source, one.row.counter, one.row.figure)


def memory_classes(comparisons: Sequence[MemoryOutcome]) -> list[dict[str, Any]]:
    """The figures of each class: state or peak, its counter, and its size."""
    found = grouped(_predicted(comparisons), lambda one: (one.row.figure, one.row.counter, _size(one)))
    return [figures(list(key), found[key]) for key in sorted(found, reverse=True)]


def _size(one: MemoryComparison) -> str:
    return "up to 4 GB" if one.measured <= SMALL_BYTES else "above 4 GB"


def figures(key: list[str], comparisons: Sequence[MemoryComparison]) -> dict[str, Any]:
    """Rows, families and distinct figures, mean and median error in percent, bias, and rows wrongly called FITS.

    A family, by the column of that name, counts once: by the means of its errors. Without the column each row is one.
    """
    found = scores(comparisons, lambda one: one.row.run.text("family") or f"row {one.row.run.row_id}")
    return {
        "key": key,
        "rows": found.rows,
        "families": len(found.families),
        "distinct": len({one.measured for one in comparisons}),
        **found.percent,
        "fits_in_vain": sum(one.wrongly_fits for one in comparisons),
    }


def memory_reliability(comparisons: Sequence[MemoryOutcome]) -> list[ReliabilityBin]:
    """The reliability of the probabilities, of each run once: one that stayed within its device's memory fitted."""
    peaks = [one for one in _predicted(comparisons) if one.row.figure == PEAK]
    return reliability((one.fits_probability, not one.exceeds) for one in peaks)


def memory_json(comparisons: Sequence[MemoryOutcome]) -> dict[str, Any]:
    return {
        "version": version_of("validate-memory"),
        "rows": [_row_json(one) for one in comparisons],
        "summary": memory_summary(comparisons),
        "classes": memory_classes(comparisons),
        "reliability": as_json(memory_reliability(comparisons)),
    }


def _row_json(one: MemoryOutcome) -> dict[str, Any]:
    compared = one if isinstance(one, MemoryComparison) else None
    return {
        "row_id": one.row.run.row_id,
        "status": "predicted" if compared else "not_expressible",
        "why": "" if isinstance(one, MemoryComparison) else one.why,
        "figure": one.row.figure,
        "counter": one.row.counter,
        "predicted_bytes": compared and compared.predicted.median,
        "measured_bytes": one.row.size,
        **picked(compared, "error verdict fits_probability"),
    }
