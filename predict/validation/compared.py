"""A prediction next to its measurement, and the figures of many: what every kind of `predict validate` shares."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any, Generic, TypeVar

from predict.interval import Interval

Row = TypeVar("Row")
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """A predicted interval next to the measured value, in the same unit; of times, in µs, `measured_us` reads it."""

    predicted: Interval
    measured: float

    @property
    def measured_us(self) -> float:
        return self.measured

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted.median / self.measured - 1

    @property
    def covered(self) -> bool:
        """Whether the 90 % interval contains the measured value."""
        return self.predicted.covers(self.measured)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused(Generic[Row]):
    """A row that cannot be predicted, and why."""

    row: Row
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """Figures of comparisons; errors are fractions, and each figure is None without any comparison."""

    families: Sequence[Sequence[Compared]]
    """Comparisons in families of similar ones; each family counts once: by the means of its own."""

    @property
    def rows(self) -> int:
        return sum(map(len, self.families))

    @property
    def mean(self) -> float | None:
        """Mean size of the errors."""
        return mean_or_none(self._sizes)

    @property
    def median(self) -> float | None:
        return median(self._sizes) if self.families else None

    @property
    def worst(self) -> float | None:
        return max(self._sizes, default=None)

    @property
    def bias(self) -> float | None:
        """Mean signed error."""
        return mean_or_none(fmean(one.error for one in family) for family in self.families)

    @property
    def coverage(self) -> float | None:
        """Share of the intervals that contain the measured value."""
        return mean_or_none(fmean(one.covered for one in family) for family in self.families)

    @property
    def half_width_log(self) -> float | None:
        """Mean half-width of the intervals in log."""
        return mean_or_none(fmean(one.predicted.half_width_log for one in family) for family in self.families)

    @property
    def percent(self) -> dict[str, float | None]:
        """Mean and median size of the errors and their bias, in percent, as tables of published runs have them."""
        figures = {"mean_error_percent": self.mean, "median_error_percent": self.median, "bias_percent": self.bias}
        return {name: None if share is None else 100 * share for name, share in figures.items()}

    @property
    def _sizes(self) -> list[float]:
        return [fmean(abs(one.error) for one in family) for family in self.families]


def scores(compared: Iterable[Compared], family: Callable[[Any], Hashable] = id) -> Scores:
    """The figures of comparisons; those that agree in `family` count once."""
    return Scores(families=list(grouped(compared, family).values()))


def grouped(rows: Iterable[Row], name: Callable[[Row], Name]) -> dict[Name, list[Row]]:
    """The rows of each name, in the order in which the names come first."""
    groups: dict[Name, list[Row]] = {}
    for row in rows:
        groups.setdefault(name(row), []).append(row)
    return groups


def mean_or_none(values: Iterable[float]) -> float | None:
    """The mean; None without a value."""
    listed = list(values)
    return fmean(listed) if listed else None


def mean_over_sources(values: Iterable[tuple[str, float]]) -> float:
    """The mean of values by source. A source weighs by the square root of its values: a long sweep of one stack does not speak for all."""
    by_source = [[value for _, value in own] for own in grouped(values, lambda pair: pair[0]).values()]
    return fmean(map(fmean, by_source), [math.sqrt(len(own)) for own in by_source])


# Predicted probabilities of fitting in memory beside what ran and what ran out of it: reliability.

BIN_EDGES = (0.0, 0.05, 0.35, 0.65, 0.95, 1.0)
"""The first bin is the verdict OOM, the last FITS, and AT RISK lies in three between them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReliabilityBin:
    """Plans whose predicted probability lies between two edges: those of a calibrated prediction fit as often as predicted."""

    low: float
    high: float
    plans: int
    predicted: float | None
    """Mean of the probabilities; None without plans."""
    fitted: float | None
    """Share of the plans that ran."""


def reliability(plans: Iterable[tuple[float, bool]]) -> list[ReliabilityBin]:
    """The bins of plans, each its predicted probability and whether it ran."""
    known = list(plans)
    return [
        _bin(low, high, [plan for plan in known if _is_in(plan[0], low, high)]) for low, high in pairwise(BIN_EDGES)
    ]


def _is_in(probability: float, low: float, high: float) -> bool:
    """The verdicts take their own edges: 5 % is OOM and 95 % FITS."""
    above = probability >= low if low in (0.0, BIN_EDGES[-2]) else probability > low
    return above and (probability < high if high == BIN_EDGES[-2] else probability <= high)


def _bin(low: float, high: float, plans: Sequence[tuple[float, bool]]) -> ReliabilityBin:
    return ReliabilityBin(
        low=low,
        high=high,
        plans=len(plans),
        predicted=mean_or_none(probability for probability, _ in plans),
        fitted=mean_or_none(ran for _, ran in plans),
    )
