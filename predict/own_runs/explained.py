"""The terms of a calibration that would explain a change: a step that depends twice as much on one must have moved twice as far."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from predict.run.calibration.priors import PRIORS
from predict.run.calibration.terms import TERMS, bounds

Floats = NDArray[np.float64]
FIRST = 0.1
"""Logarithm of the factor that is tried first."""
ROUNDS = 4
NOTHING = 1e-3
"""Share of a step that is too little to know a term by."""
AS_WELL = 3.84
"""Squared standard deviations by which another term may be worse and still explain the change as well (chi-squared, 95 %)."""
OWN = 0.01
"""Standard deviation in log time of what each configuration's shift has of its own. Assumed: repeats on the same nodes differ by 0.1 to 2 %."""


Respond: TypeAlias = Callable[[str, float], Floats]
"""A term and the logarithm of its factor → how far the step of each configuration moves, in log time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """A factor on one term that stands for a change."""

    term: str
    factor: float
    share: float
    """Share of the shifts' squares that it explains."""
    distance: float
    """Squared standard deviations of the term's prior and of what it leaves: the least is the likeliest."""


def explanations(shifts: Floats, weights: Floats, respond: Respond, noise: float) -> list[Explanation]:
    """The terms that explain the configurations' mean shifts over a change, the likeliest first, and those that do as well.

    A weight is n·m / (n + m) of n runs before and m after; `noise` is the standard deviation of a run in log time.
    """
    precision = 1 / (OWN**2 + noise**2 / weights)
    found = [each for name in TERMS if (each := _by(name, shifts, precision, respond))]
    found.sort(key=lambda each: each.distance)
    return [each for each in found if each.distance <= found[0].distance + AS_WELL]


def _by(name: str, shifts: Floats, precision: Floats, respond: Respond) -> Explanation | None:
    """The likeliest factor on a term; None where no step depends on it, or it would leave its bounds."""
    low, high = (math.log(bound) for bound in bounds()[name])
    log = math.copysign(FIRST, float((precision * shifts).sum()))
    for _ in range(ROUNDS):  # a step is not linear in a term: a transfer comes out from behind its compute
        slopes = respond(name, log) / log
        if float(np.abs(slopes).max()) < NOTHING:
            return None
        wanted = float((precision * slopes * shifts).sum()) / float(
            (precision * slopes**2).sum() + 1 / PRIORS[name] ** 2
        )
        if not low <= wanted <= high or abs(wanted) < NOTHING:
            return None
        log = wanted
    left = shifts - respond(name, log)
    return Explanation(
        term=name,
        factor=math.exp(log),
        share=1 - float((precision * left**2).sum() / (precision * shifts**2).sum()),
        distance=(log / PRIORS[name]) ** 2 + float((precision * left**2).sum()),
    )
