"""Refusals of measurements that no calibration explains: of another run, in other units, or at odds with one another.

A term that ends FAR from 1 must rest on more than one run. A wrong time, or the config of another run, can nearly always be explained by
some term (a network whose time hides behind compute may be taken for 20 times slower before the step is 40 % longer), and one run alone
cannot tell the two apart: the term is held to a standard deviation of its prior, and a run that is still not explained is refused. Where
others bear it out, each by the terms that it gives without the one in question, a term may move up to its bounds: the network of a
cluster may be many times slower than its hardware file says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from predict import estimate
from predict.calibrate.fit import Fit, MeasuredRun, fit, unexplained
from predict.interval import width_of_step
from predict.own_runs.belonging import unit_mistake
from predict.own_runs.repeats import AT_ODDS
from predict.run.calibration.priors import prior_deviations
from regressors.features.arrays import Floats
from sampling.errors import UserError
from sampling.number_text import duration

UNLIKELY = 3.72
"""Standard deviations, of a Gaussian, beyond which the measurements are not of the configs that they are said to be: 1 in 10,000."""
MANY_GPUS, NEAR_GPUS = 8, 1.3
"""A step that is shorter than predicted by a factor of that many GPUs, within the second factor, is of all GPUs' rate taken for one's."""
FAR = 2.0
"""Standard deviations of a term's prior beyond which it must rest on more than one run; half as many are asked of the others."""


def require_units(measured: Sequence[MeasuredRun], option: str = "--measured") -> None:
    """UserError that names every time that is off by a thousand or a million; it needs no fit. `option` is the one that gave them."""
    if faults := [*_wrong_units(measured, unexplained(measured))]:
        raise UserError("\n".join(f"{option}: {each}" for each in faults))


def explained_fit(
    measured: Sequence[MeasuredRun], tell: Callable[[str], None] = lambda _: None, option: str = "--measured"
) -> Fit:
    """The terms that explain the measurements. UserError that names every run at fault, where none within their bounds and priors do."""
    found = fit(measured, tell)
    if (within := reach(found)) is not None:
        tell("one run alone moves a term far: it is held to a standard deviation of its prior")
        found = fit(measured, tell, within)
    require_explained(measured, found, option)
    return found


def require_explained(measured: Sequence[MeasuredRun], found: Fit, option: str = "--measured") -> None:
    """UserError that names every run at fault, where the terms within their bounds and priors do not explain the measurements."""
    if faults := [*_contradictions(measured, found)]:
        raise UserError("\n".join(f"{option}: {each}" for each in faults))
    if found.surprise > _most_expected(len(measured)):
        told = ", ".join(_told(one, off) for one, off in zip(measured, found.before, strict=True))
        raise UserError(
            f"{option}: {told}: further off than the terms of a calibration may stand for; check that the config is that of the run, "
            f"its cluster's GPUs and network too, and that the time is of one whole step{_whose_rows(measured)}"
        )


def _whose_rows(measured: Sequence[MeasuredRun]) -> str:
    """The end of a sentence that names the rows that predictions rest on, where those are not of the runs' own device."""
    provenances = (estimate(one.runs[0], require_fit=False).provenance for one in measured)
    notes = dict.fromkeys(note for each in provenances for note in each["notes"])
    return "".join(f"; besides, {note}" for note in notes)


def reach(found: Fit) -> Floats | None:
    """The farthest from 0 that the logarithm of each term may be, where one that ends FAR from it rests on a single run; None where none does."""
    widths = prior_deviations(width_of_step(found.transfer_error, found.machine_error))
    far = np.abs(found.logs) > FAR * widths
    borne = np.all(np.sign(found.logs) * found.others_logs >= FAR / 2 * widths, axis=0)
    alone = far & ~borne
    return np.where(alone, FAR / 2 * widths, np.inf) if alone.any() else None


def _wrong_units(measured: Sequence[MeasuredRun], before: Floats) -> Iterator[str]:
    for one, off in zip(measured, before, strict=True):
        gpus = one.runs[0].cluster.world_size
        if gpus >= MANY_GPUS and abs(off + math.log(gpus)) < math.log(NEAR_GPUS):
            yield (
                f"{_told(one, off)}: about 1/{gpus} of it, as where the tokens/s of all {gpus} GPUs are taken for those of one; give "
                "the rate per GPU, or the time of a step"
            )
        elif mistaken := unit_mistake(math.exp(off)):
            yield f"{_told(one, off)}: about {mistaken} the time that is predicted; give it in the unit that it is in, such as 412ms"


def _most_expected(runs: int) -> float:
    """The sum of that many squared Gaussians that is exceeded as rarely as UNLIKELY (Wilson and Hilferty's cube root, 1931)."""
    share = 2 / (9 * runs)
    return runs * (1 - share + UNLIKELY * math.sqrt(share)) ** 3


def at_odds(found: Fit) -> int | None:
    """The place of the run that the others contradict most, beyond noise; None where they agree."""
    distances = np.abs(found.left_out / found.left_out_deviations)
    worst = int(np.argmax(distances))
    return worst if len(distances) > 1 and distances[worst] > AT_ODDS else None


def _contradictions(measured: Sequence[MeasuredRun], found: Fit) -> Iterator[str]:
    """The run at odds with the others; of two runs, both."""
    if (worst := at_odds(found)) is None:
        return
    off = 100 * math.expm1(found.left_out[worst])
    named = " and ".join(one.name for one in measured) if len(measured) == 2 else measured[worst].name
    yield (
        f"{named}: measured {off:+.0f} % from what the other runs make of it, more than the noise of runs; measure again, or "
        "leave it out"
    )


def _told(one: MeasuredRun, off: float) -> str:
    predicted_us = one.measured_us * math.exp(-off)
    return f"{one.name}: measured {duration(one.measured_us)}, predicted {duration(predicted_us)}"
