"""A predicted time beside a published one, and figures over many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from predict.interval import Interval
from sampling.units import SECOND_US

PHASES = ("gen", "old_log_prob", "ref", "update_actor", "update_weights", "step")
"""Phases that tables publish."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """One phase of one row."""

    predicted: Interval
    measured_us: float
    in_sample: bool = False
    """A term of the prediction was read from this very source and phase."""

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted.median_us / self.measured_us - 1

    @property
    def covered(self) -> bool:
        return self.predicted.covers(self.measured_us)


def summaries(judged: Mapping[str, Sequence[Judged]]) -> dict[str, dict[str, dict[str, float | None]]]:
    """The figures of each phase: `summary` over times that no term was read from, `summary_in_sample` over the others."""
    return {
        key: {name: summary([one for one in found if one.in_sample == read]) for name, found in judged.items()}
        for key, read in (("summary", False), ("summary_in_sample", True))
    }


def summary(judged: Sequence[Judged]) -> dict[str, float | None]:
    """Mean and median size of the errors, their mean, and the share that the intervals hold; errors are fractions."""
    if not judged:
        return {"rows": 0, "mean": None, "median": None, "bias": None, "coverage": None}
    errors = [one.error for one in judged]
    return {
        "rows": len(judged),
        "mean": fmean(map(abs, errors)),
        "median": median(map(abs, errors)),
        "bias": fmean(errors),
        "coverage": fmean(one.covered for one in judged),
    }


def phase_json(judged: Judged) -> dict[str, Any]:
    """One phase of a row of `predict validate rl --json`."""
    return {
        "predicted_s": judged.predicted.median_us / SECOND_US,
        "low_s": judged.predicted.low_us / SECOND_US,
        "high_s": judged.predicted.high_us / SECOND_US,
        "measured_s": judged.measured_us / SECOND_US,
        "error": judged.error,
        "covered": judged.covered,
        "in_sample": judged.in_sample,
    }
