"""Fitting the terms of a calibration to measured runs: a Gaussian posterior over the stated priors."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import fmean

import numpy as np

from predict import estimate
from predict.interval import width_of_step
from predict.layers.run_json import dump_run
from predict.measured_runs.log_matches_config import unit_mistake
from predict.measured_runs.steady_state import AT_ODDS
from predict.run.calibration_file import scaled
from predict.run.calibration_terms import (
    NETWORK,
    NETWORKS,
    TERMS,
    CalibratedRun,
    Calibration,
    MeasuredTime,
    Posterior,
    bounds,
    prior_at,
    prior_deviations,
)
from predict.run.training_run import TrainingRun
from predict.step.composition_error import elasticities, machine_error, own_deviation
from regressors.features.arrays import Floats
from sampling.errors import UserError
from sampling.files.faults import counted
from sampling.number_text import duration, signed_percent

MOST_ROUNDS = 8
CLOSE = 0.005
"""Change of a term's logarithm below which a round is the last."""
NO_PART = 1e-6
"""Derivative of a step by a term that has no part in it."""
HALVINGS = 5
AS_EXPECTED = 4.0
"""Imagined runs with the expected scatter that are added to the measured ones when the scatter is learnt. Assumed."""
ROBUST = 2.0
"""Standard deviations of a run beyond which it counts by the square root of its distance, not the square (Huber)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRun:
    """A measured step time, and the runs that it may be of: several where something was not stated. No calibration is in them."""

    name: str
    runs: tuple[TrainingRun, ...]
    measured_us: float
    times: tuple[MeasuredTime, ...] = ()
    """The times that it is the median of, where they were given singly."""
    noise: float = 0.0
    """Standard deviation in log time that the steps' own noise leaves; 0 where nothing shows it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """Terms fitted to runs; logarithms, one a run in their order."""

    logs: Floats
    """Logarithms of the terms."""
    covariance: Floats
    before: Floats
    """Measured less predicted without the terms."""
    after: Floats
    left_out: Floats
    """Measured less predicted with the terms that the other runs give, as far as the step is linear about the fit."""
    deviations: Floats
    """Standard deviation of each run about what the terms explain."""
    left_out_deviations: Floats
    """Standard deviation of each `left_out`: the run's own, and the one of terms that the other runs leave open."""
    prior: Floats
    """Covariance of the terms' logarithms before any run was measured, on the side of 0 on which they ended."""
    cost: float
    """-2 times the logarithm of how likely the measured steps are with this network, but for a constant (Laplace's approximation)."""
    transfer_error: float
    """Half-width at 90 % that rows of another CPU add to the runs' steps."""
    machine_error: float
    """Half-width at 90 % that an architecture without published runs adds to them."""
    others_logs: Floats
    """Logarithms of the terms that the other runs give, shape (runs, terms), as far as the step is linear about the fit."""

    @property
    def terms(self) -> Calibration:
        return terms_of(self.logs)

    @property
    def scatter(self) -> float:
        """Scatter of runs about what the terms explain over what was expected: the squares by which each run misses what the others make
        of it, and AS_EXPECTED more of 1. Never below 1, and 1 for a single run."""
        misses = (self.left_out / self.left_out_deviations) ** 2
        if len(misses) == 1:
            return 1.0
        return math.sqrt(max(1.0, (AS_EXPECTED + float(misses.sum())) / (AS_EXPECTED + len(misses))))

    @property
    def surprise(self) -> float:
        """Squared distance of what was measured from what the priors expect, in standard deviations: about the number of runs."""
        of_terms = float(self.logs @ np.linalg.solve(self.prior, self.logs))
        return of_terms + float(np.sum((self.after / self.deviations) ** 2))


def terms_of(logs: Sequence[float] | Floats) -> Calibration:
    """The terms of their logarithms, in order."""
    return Calibration(**{name: math.exp(log) for name, log in zip(TERMS, logs, strict=True)})


def fit(
    measured: Sequence[MeasuredRun], report: Callable[[str], None] = lambda _: None, within: Floats | None = None
) -> Fit:
    """The terms of the greatest posterior density within their bounds, and logarithms no further from 0 than `within`, one a term; with
    the network that its hardware file states, or with another one, whichever the runs speak for."""
    slopes = derivatives(measured, np.zeros(len(TERMS)))
    start = _Start(
        measured=measured,
        slopes=slopes,
        off=unexplained(measured),
        deviations=deviations_of(measured, slopes),
        transfer_error=max(_transfer_error(run) for one in measured for run in one.runs),
        machine_error=max(machine_error(run) for one in measured for run in one.runs),
    )
    low, high = (np.log([bounds()[name][side] for name in TERMS]) for side in (0, 1))
    if within is not None:
        low, high = np.maximum(low, -within), np.minimum(high, within)
    crosses_nodes = bool(np.any(np.abs(slopes[:, TERMS.index(NETWORK)]) > NO_PART))
    tried: list[Fit] = []
    for network, share in [*NETWORKS.items()][: 2 if crosses_nodes else 1]:
        report(f"fitting {counted(len(measured), 'run')}" + (", with another network" if tried else ""))
        tried.append(_fitted(start, low, high, network, share))
    return min(tried, key=lambda each: each.cost)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Start:
    """Runs as they are predicted without the terms."""

    measured: Sequence[MeasuredRun]
    slopes: Floats
    off: Floats
    deviations: Floats
    transfer_error: float
    machine_error: float

    def prior(self, logs: Floats, network: float) -> Floats:
        return prior_at(logs, width_of_step(self.transfer_error, self.machine_error), network)


def _fitted(start: _Start, low: Floats, high: Floats, network: float, share: float) -> Fit:
    """The fit with a network of that standard deviation, by Gauss-Newton steps on the estimate itself; `share` of clusters have it."""
    measured, deviations = start.measured, start.deviations

    def precision_at(logs: Floats) -> Floats:
        return _inverse(start.prior(logs, network))

    def loss(logs: Floats, off: Floats) -> float:
        return float(logs @ precision_at(logs) @ logs) + float(np.sum(_huber(off / deviations)))

    targets = np.log([one.measured_us for one in measured])
    logs: Floats = np.zeros(len(TERMS))
    off, slopes = start.off, start.slopes
    for done in range(MOST_ROUNDS):
        slopes = derivatives(measured, logs) if done else slopes
        weights = _weights(off / deviations) / deviations**2
        wanted, normal = _wanted(logs, off, slopes, weights, precision_at)
        found, off = _better(measured, targets, logs, np.clip(wanted, low, high), off, loss)
        moved = float(np.max(np.abs(found - logs)))
        logs = found
        if moved < CLOSE:
            break
    covariance = _inverse(normal)
    prior = start.prior(logs, network)
    leverage = np.einsum("it,ts,is->i", slopes, covariance, slopes) * weights
    own = 1 - np.minimum(leverage, 0.999)  # the share of a run's distance that stays when the run is fitted to
    return Fit(
        logs=logs,
        covariance=covariance,
        before=start.off,
        after=off,
        left_out=off / own,
        deviations=deviations,
        left_out_deviations=deviations / np.sqrt(own),
        prior=prior,
        cost=loss(logs, off) + float(np.linalg.slogdet(normal @ prior)[1]) - 2 * math.log(share),
        transfer_error=start.transfer_error,
        machine_error=start.machine_error,
        others_logs=_by_the_others(logs, covariance, (slopes.T * (weights * off / own)).T),
    )


def _inverse(matrix: Floats) -> Floats:
    found: Floats = np.linalg.inv(matrix).astype(np.float64)
    return found


def _wanted(
    logs: Floats, off: Floats, slopes: Floats, weights: Floats, precision_at: Callable[[Floats], Floats]
) -> tuple[Floats, Floats]:
    """The point to which a step of Gauss and Newton leads, by the priors on the side of 0 on which it ends, and the curvature there."""
    wanted = logs
    for _ in range(2):
        precision = precision_at(wanted)
        normal: Floats = (slopes.T * weights) @ slopes + precision
        wanted = logs + np.linalg.solve(normal, slopes.T @ (weights * off) - precision @ logs)
    return wanted, normal


def _by_the_others(logs: Floats, covariance: Floats, pulls: Floats) -> Floats:
    """The logarithms of the terms without the pull of each run; without the only run, the priors' own."""
    without: Floats = logs - pulls @ covariance if len(pulls) > 1 else np.zeros((1, len(logs)))
    return without


def _better(
    measured: Sequence[MeasuredRun],
    targets: Floats,
    logs: Floats,
    wanted: Floats,
    off: Floats,
    loss: Callable[[Floats, Floats], float],
) -> tuple[Floats, Floats]:
    """The point between the terms and those wanted that is better, half as far each time; the terms themselves where none is."""
    least = loss(logs, off)
    for _ in range(HALVINGS):
        tried_off = targets - _predicted(measured, wanted)
        if loss(wanted, tried_off) <= least:
            return wanted, tried_off
        wanted = (logs + wanted) / 2
    return logs, off


def _huber(distances: Floats) -> Floats:
    far = np.abs(distances)
    squares: Floats = np.where(far <= ROBUST, far**2, 2 * ROBUST * far - ROBUST**2)
    return squares


def _weights(distances: Floats) -> Floats:
    weights: Floats = ROBUST / np.maximum(np.abs(distances), ROBUST)
    return weights


def step_us(run: TrainingRun) -> float:
    """The predicted step of a run in µs, whether or not it fits in memory."""
    return estimate(run, require_fit=False).median_us


def unexplained(measured: Sequence[MeasuredRun]) -> Floats:
    """Logarithms of the measured steps less those of the predicted, without any terms."""
    logs: Floats = np.log([one.measured_us for one in measured]) - _predicted(measured, np.zeros(len(TERMS)))
    return logs


def _predicted(measured: Sequence[MeasuredRun], logs: Floats) -> Floats:
    """Logarithms of the predicted steps in µs."""
    terms = terms_of(logs)
    return np.array([fmean(math.log(step_us(scaled(run, terms))) for run in one.runs) for one in measured])


def _transfer_error(run: TrainingRun) -> float:
    return estimate(run, require_fit=False).prices.transfer_error


def deviations_of(measured: Sequence[MeasuredRun], slopes: Floats) -> Floats:
    """Standard deviation of each run's logarithm about what the terms explain; `slopes` are the derivatives by the terms. It has the
    noise of an ordinary measurement in it, so that the steps' own noise counts where it is larger."""
    widths = [fmean(estimate(run, require_fit=False).own_half_width for run in one.runs) for one in measured]
    own = [own_deviation(width, by) for width, by in zip(widths, slopes.tolist(), strict=True)]
    return np.maximum(own, [one.noise for one in measured])


def derivatives(measured: Sequence[MeasuredRun], logs: Floats) -> Floats:
    """Derivatives of the steps' logarithms by those of the terms, shape (runs, terms)."""
    terms = terms_of(logs)
    return np.array(
        [np.mean([elasticities(scaled(run, terms), step_us) for run in one.runs], axis=0) for one in measured]
    )


def posterior_of(measured: Sequence[MeasuredRun], found: Fit) -> Posterior:
    """The content of a fit's calibration file."""
    errors = np.abs(np.expm1(-found.left_out))
    return Posterior(
        terms=found.terms,
        covariance=tuple(map(tuple, found.covariance.tolist())),
        runs=tuple(
            CalibratedRun(
                run=one.name,
                measured_us=one.measured_us,
                before_us=one.measured_us * math.exp(-before),
                after_us=one.measured_us * math.exp(-after),
                left_out_us=one.measured_us * math.exp(-left_out),
                times=one.times,
                described=dump_run(one.runs[0]) if one.times else None,
            )
            for one, before, after, left_out in zip(measured, found.before, found.after, found.left_out, strict=True)
        ),
        date=date.today().isoformat(),
        left_out_percent=100 * float(np.mean(errors)) if len(measured) > 1 else None,
        transfer_error=found.transfer_error,
        machine_error=found.machine_error,
        scatter=found.scatter,
    )


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
    measured: Sequence[MeasuredRun], report: Callable[[str], None] = lambda _: None, option: str = "--measured"
) -> Fit:
    """The terms that explain the measurements. UserError that names every run at fault, where none within their bounds and priors do.

    A term that ends FAR from 1 must rest on more than one run. A wrong time, or the config of another run, can nearly always be explained
    by some term (a network whose time hides behind compute may be taken for 20 times slower before the step is 40 % longer), and one run
    alone cannot distinguish the two: the term is held to a standard deviation of its prior, and a run that is still not explained is
    refused. Where others bear it out, each by the terms that it gives without the one in question, a term may move up to its bounds: the
    network of a cluster may be many times slower than its hardware file says.
    """
    found = fit(measured, report)
    if (within := reach(found)) is not None:
        report("one run alone moves a term far: it is held to a standard deviation of its prior")
        found = fit(measured, report, within)
    require_explained(measured, found, option)
    return found


def require_explained(measured: Sequence[MeasuredRun], found: Fit, option: str = "--measured") -> None:
    """UserError that names every run at fault, where the terms within their bounds and priors do not explain the measurements."""
    if faults := [*_contradictions(measured, found)]:
        raise UserError("\n".join(f"{option}: {each}" for each in faults))
    if found.surprise > _most_expected(len(measured)):
        stated = ", ".join(_described(one, off) for one, off in zip(measured, found.before, strict=True))
        raise UserError(
            f"{option}: {stated}: further off than the terms of a calibration may stand for; check that the config is the run's, "
            f"its cluster's GPUs and network too, and that the time is one whole step{_sample_provenance(measured)}"
        )


def _sample_provenance(measured: Sequence[MeasuredRun]) -> str:
    """The end of a sentence that names the rows that predictions rest on, where those are not of the runs' own device."""
    provenances = (estimate(one.runs[0], require_fit=False).provenance for one in measured)
    notes = dict.fromkeys(note for each in provenances for note in each["notes"])
    return "".join(f"; besides, {note}" for note in notes)


def reach(found: Fit) -> Floats | None:
    """The farthest from 0 that the logarithm of each term may be, where one that ends FAR from it rests on a single
    run; None where none does."""
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
                f"{_described(one, off)}: about 1/{gpus} of it, as where the tokens/s of all {gpus} GPUs are taken for those of one; give "
                "the rate per GPU, or the time of a step"
            )
        elif mistaken := unit_mistake(math.exp(off)):
            yield f"{_described(one, off)}: about {mistaken} the time that is predicted; give it in the unit that it is in, such as 412ms"


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
    error = math.expm1(-found.left_out[worst])
    named = " and ".join(one.name for one in measured) if len(measured) == 2 else measured[worst].name
    yield (
        f"{named}: predicted from the other runs with an error of {signed_percent(error, decimals=0)}, more than the noise of runs; measure again, "
        "or leave it out"
    )


def _described(one: MeasuredRun, off: float) -> str:
    predicted_us = one.measured_us * math.exp(-off)
    return f"{one.name}: measured {duration(one.measured_us)}, predicted {duration(predicted_us)}"
