"""Ties: plans whose times cannot be told apart, by the interval of their ratio.

Two plans of one model on one cluster share most of what their intervals hold. One kind of call that is slower than predicted slows
both, each by its own share of the step, so that only the difference of the shares is left in the ratio; and of the composition
errors, whose terms add in quadrature, only those terms that the plans do not share. What remains adds in quadrature, with the
noise of repeated measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from predict.step.interval import kind_shifts
from predict.step.prediction import Prediction
from predict.step.spread import Kind

REPEATS = 0.02
"""Half-width in log time by which two measurements of one run on the same nodes differ: 0.1 to 2 % in published repeats."""
MOST_OF_IT = 0.5
"""Share of a ratio's variance from which on one kind of call is what to time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """The time per token of a plan over that of the best one, with its 90 % bounds."""

    median: float
    low: float
    high: float
    widest: Kind | None
    """The kind of call whose error moves the ratio most, if any does."""
    share: float
    """The share of the ratio's variance that it makes."""

    @property
    def tied(self) -> bool:
        """Whether the plan may be the faster one."""
        return self.low <= 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """A plan's errors by kind of call, as shares of its step."""

    us_per_token: float
    half_widths: Mapping[Kind, float]
    """Signed: positive where a slower kind makes a slower step, as all but noise does."""
    composition_error: float


def contender(prediction: Prediction, us_per_token: float) -> Contender:
    shifts = kind_shifts(prediction.timeline.order, prediction.ranks, blocking=prediction.run.blocks_on_sends)
    return Contender(
        us_per_token=us_per_token,
        half_widths={kind: (above - below) / 2 / prediction.median_us for kind, (below, above) in shifts.items()},
        composition_error=prediction.composition_error,
    )


def ratio(best: Contender, other: Contender) -> Ratio:
    """The ratio of another plan to the best one."""
    kinds = {*best.half_widths, *other.half_widths}
    left = {kind: other.half_widths.get(kind, 0.0) - best.half_widths.get(kind, 0.0) for kind in sorted(kinds)}
    own_terms = math.sqrt(abs(other.composition_error**2 - best.composition_error**2))
    width = math.hypot(REPEATS, own_terms, *left.values())
    median = other.us_per_token / best.us_per_token
    widest = max(left, key=lambda kind: abs(left[kind]), default=None)
    return Ratio(
        median=median,
        low=median / math.exp(width),
        high=median * math.exp(width),
        widest=widest,
        share=left[widest] ** 2 / width**2 if widest else 0.0,
    )


def experiment(nearest: Ratio, place: int) -> str:
    """The experiment that would tell the best plan from a tied one, which is at `place` of the ranking."""
    if nearest.widest is None or nearest.share < MOST_OF_IT:
        return f"measure plans 1 and {place}, 20 steps each: no single kind of call makes most of what is uncertain between them"
    name, phase = nearest.widest
    return (
        f"sample {name} ({phase}) in the shapes of plans 1 and {place}: its error makes {nearest.share:.0%} of what is uncertain "
        "between them (`predict calls` lists the shapes)"
    )
