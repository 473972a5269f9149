"""Fitting the terms of a calibration to measured runs: a Gaussian posterior over the stated priors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from predict import estimate
from predict.run.calibration.file import scaled
from predict.run.calibration.priors import prior_covariance
from predict.run.calibration.terms import TERMS, CalibratedRun, Calibration, MeasuredTime, Posterior, bounds
from predict.run.run_json import dump_run
from predict.run.training_run import TrainingRun
from predict.step.composition_error import own_deviation
from predict.step.elasticities import elasticities
from sampling.files.faults import counted

Floats = NDArray[np.float64]
MOST_ROUNDS = 8
CLOSE = 0.005
"""Change of a term's logarithm below which a round is the last."""
HALVINGS = 5
ROBUST = 2.0
"""Standard deviations of a run beyond which it counts by the square root of its distance, not the square (Huber)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRun:
    """A measured step time, and the runs that it may be of: several where something was not told. No calibration is in them."""

    name: str
    runs: tuple[TrainingRun, ...]
    measured_us: float
    times: tuple[MeasuredTime, ...] = ()
    """The times that it is the median of, where they were given singly."""


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
    """Standard deviation of each `left_out`: the run's own, and that of terms which the other runs leave open."""
    prior: Floats
    """Covariance of the terms' logarithms before any run was measured."""
    transfer_error: float
    """Half-width at 90 % that rows of another CPU add to the runs' steps."""
    others_logs: Floats
    """Logarithms of the terms that the other runs give, shape (runs, terms), as far as the step is linear about the fit."""

    @property
    def terms(self) -> Calibration:
        return terms_of(self.logs)

    @property
    def surprise(self) -> float:
        """Squared distance of what was measured from what the priors expect, in standard deviations: about the number of runs."""
        of_terms = float(self.logs @ np.linalg.solve(self.prior, self.logs))
        return of_terms + float(np.sum((self.after / self.deviations) ** 2))


def terms_of(logs: Sequence[float] | Floats) -> Calibration:
    """The terms of their logarithms, in order."""
    return Calibration(**{name: math.exp(log) for name, log in zip(TERMS, logs, strict=True)})


def fit(
    measured: Sequence[MeasuredRun], tell: Callable[[str], None] = lambda _: None, within: Floats | None = None
) -> Fit:
    """The terms of the greatest posterior density within their bounds, and logarithms no further from 0 than `within`, one a term; by
    Gauss-Newton steps on the estimate itself."""
    transfer_error = max(_transfer_error(run) for one in measured for run in one.runs)
    prior = prior_covariance(transfer_error)
    precision = np.linalg.inv(prior)
    targets = np.log([one.measured_us for one in measured])
    slopes = derivatives(measured, np.zeros(len(TERMS)))
    deviations = deviations_of(measured, slopes)
    low, high = (np.log([bounds()[name][side] for name in TERMS]) for side in (0, 1))
    if within is not None:
        low, high = np.maximum(low, -within), np.minimum(high, within)

    def loss(logs: Floats, off: Floats) -> float:
        return float(logs @ precision @ logs) + float(np.sum(_huber(off / deviations)))

    logs, off = np.zeros(len(TERMS)), unexplained(measured)
    before = off
    for done in range(MOST_ROUNDS):
        tell(f"fitting, round {done + 1}: {counted(len(measured), 'run')}")
        slopes = derivatives(measured, logs) if done else slopes
        weights = _weights(off / deviations) / deviations**2
        normal = (slopes.T * weights) @ slopes + precision
        wanted = np.clip(logs + np.linalg.solve(normal, slopes.T @ (weights * off) - precision @ logs), low, high)
        found, found_off = _better(measured, targets, logs, wanted, off, loss)
        moved = float(np.max(np.abs(found - logs)))
        logs, off = found, found_off
        if moved < CLOSE:
            break
    covariance = np.linalg.inv(normal)
    leverage = np.einsum("it,ts,is->i", slopes, covariance, slopes) * weights
    own = 1 - np.minimum(leverage, 0.999)  # the share of a run's distance that stays when the run is fitted to
    return Fit(
        logs=logs,
        covariance=covariance,
        before=before,
        after=off,
        left_out=off / own,
        deviations=deviations,
        left_out_deviations=deviations / np.sqrt(own),
        prior=prior,
        transfer_error=transfer_error,
        others_logs=_by_the_others(logs, covariance, (slopes.T * (weights * off / own)).T),
    )


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


def _step_us(run: TrainingRun) -> float:
    return estimate(run, require_fit=False).median_us


def unexplained(measured: Sequence[MeasuredRun]) -> Floats:
    """Logarithms of the measured steps less those of the predicted, without any terms."""
    logs: Floats = np.log([one.measured_us for one in measured]) - _predicted(measured, np.zeros(len(TERMS)))
    return logs


def _predicted(measured: Sequence[MeasuredRun], logs: Floats) -> Floats:
    """Logarithms of the predicted steps in µs."""
    terms = terms_of(logs)
    return np.array([fmean(math.log(_step_us(scaled(run, terms))) for run in one.runs) for one in measured])


def _transfer_error(run: TrainingRun) -> float:
    return estimate(run, require_fit=False).prices.transfer_error


def deviations_of(measured: Sequence[MeasuredRun], slopes: Floats) -> Floats:
    """Standard deviation of each run's logarithm about what the terms explain; `slopes` are the derivatives by the terms."""
    widths = [fmean(estimate(run, require_fit=False).own_rows_half_width for run in one.runs) for one in measured]
    return np.array([own_deviation(width, by) for width, by in zip(widths, slopes.tolist(), strict=True)])


def derivatives(measured: Sequence[MeasuredRun], logs: Floats) -> Floats:
    """Derivatives of the steps' logarithms by those of the terms, shape (runs, terms)."""
    terms = terms_of(logs)
    return np.array(
        [np.mean([elasticities(scaled(run, terms), _step_us) for run in one.runs], axis=0) for one in measured]
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
    )
