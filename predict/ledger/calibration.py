"""The calibration book: what the step's times rest on, what is unknown, and the constants that moved the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from predict.ledger.constants_in_use import constants_in_use
from predict.ledger.work import StepItem
from predict.prices.published_constants import PublishedConstant
from predict.step.prediction import Prediction

SOURCES = ("measured", "extrapolated", "transferred", "analytic", "assumed")
"""The sources of a time (`regressors.bank.times.Source`); `assumed` are the host's launches and overheads that a run states."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationBook:
    """Times by source on the mean pipeline rank in µs, half-widths of unknowns, and constants by name."""

    by_source_us: Mapping[str, float]
    """Time of a step's calls and overheads, waiting aside."""
    unknowns: Mapping[str, float]
    """Causes of the interval's width: half-widths in log time at 90 %, widest first."""
    constants: Mapping[str, PublishedConstant]
    """Constants read off published runs that this step's times or interval depend on."""
    samples: str
    """The profile whose samples the times rest on; empty where none do."""
    calibrated: Mapping[str, float]
    """Terms that a calibration file multiplies; none without one."""

    @property
    def shares(self) -> dict[str, float]:
        total_us = sum(self.by_source_us.values())
        return {source: time_us / total_us for source, time_us in self.by_source_us.items()}


def calibration_book(prediction: Prediction, items: Iterable[StepItem], overheads_us: float) -> CalibrationBook:
    """The book of a step by its items; `overheads_us` are stragglers and the step's stated overhead."""
    by_source_us = dict.fromkeys(SOURCES, 0.0)
    items = tuple(items)
    for each in items:
        by_source_us[each.item.source or "assumed"] += each.time_us
    by_source_us["assumed"] += overheads_us
    samples = prediction.provenance["samples"]
    return CalibrationBook(
        by_source_us=by_source_us,
        unknowns=prediction.unknowns,
        constants=constants_in_use(prediction, items),
        samples="" if samples is None or prediction.is_analytic else samples["provenance"]["profile"],
        calibrated=prediction.provenance["calibration"] or {},
    )
