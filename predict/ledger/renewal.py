"""Failures at a constant rate: the hours of a job that saves, fails, recovers and waits for repairs, in closed form and by draws.

Between two saves a job either works for the whole interval and saves, or fails on the way, loses what it did since the last save, and
recovers, which may fail too. So the hours of one interval have a closed mean (Daly, A higher order estimate of the optimum checkpoint
interval for restart dumps, FGCS 22, 2006, equation 13). Nodes under repair are a birth-death chain whose waiting is Erlang's loss formula.
"""

import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from predict.run.calibration_terms import NINETY

Hours = NDArray[np.float64]
"""Hours, or rates an hour, of several draws."""
RATES = 64
"""Equally likely rates that stand for the spread of an uncertain one, in the closed form and in the draws."""
MOST_LOSSES = 4_000_000
"""Failed attempts that are drawn one by one; beyond, a job's are so many that their sum is normal."""
INTERVALS_TRIED = 400
LEAST_INTERVAL_H = 1 / 60
MOST_EXPONENT = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Repairs:
    """Nodes that failures break, and what a job does until they are back."""

    nodes: int
    """Nodes that the job works on."""
    node_share: float
    """Share of the failures that break a node."""
    hours: float
    """Mean hours until a broken node is back; 0 where the cluster gives another at once."""
    spares: int
    """Nodes beside those that the job works on."""
    replica_nodes: int = 0
    """Nodes that a job leaves out for each that is broken beyond the spares; 0 where it waits for a repair instead."""

    def waited(self, rates: Hours) -> Hours:
        """Probability that a failure finds all spares broken, so that the job waits: Erlang's loss formula (1917) of `spares` lines."""
        load = rates * self.node_share * self.hours
        blocked = np.ones_like(load)
        for spare in range(1, self.spares + 1):
            blocked = load * blocked / (spare + load * blocked)
        return self.node_share * blocked if self.hours and not self.replica_nodes else np.zeros_like(load)

    @property
    def wait_hours(self) -> float:
        """Mean hours of one wait: until the first of the broken nodes is back."""
        return self.hours / (self.spares + 1)

    def missing(self, rates: Hours) -> Hours:
        """Mean share of the job's nodes that it works without: broken ones are Poisson (M/G/∞), of which the spares replace so many."""
        load = rates * self.node_share * self.hours
        if not self.replica_nodes:
            return np.zeros_like(load)
        probability = np.exp(-np.minimum(load, MOST_EXPONENT))
        replaced = np.zeros_like(load)
        tail = 1 - probability
        for spare in range(1, self.spares + 1):
            replaced += tail
            probability = probability * load / spare
            tail = tail - probability
        return np.minimum(0.9, np.maximum(0.0, load - replaced) * self.replica_nodes / self.nodes)


AT_ONCE = Repairs(nodes=1, node_share=0.0, hours=0.0, spares=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobTimes:
    """Hours of one job's pieces."""

    work: float
    """All that has to be done: steps, the evaluations between them, and the like."""
    between: float
    """Work between two saves."""
    save: float
    recover: float
    """Noticing, restarting and loading after a failure, and what is done again although a save had begun."""
    rate: float
    """Failures an hour of the whole machine."""
    rate_width: float = 0.0
    """Log half-width of the rate at 90 %."""
    repairs: Repairs = AT_ONCE

    @property
    def rates(self) -> Hours:
        """Equally likely rates, shape (RATES,), or (1,) of one that is known."""
        return self.rate * factors(self.rate_width)

    @property
    def intervals(self) -> float:
        return max(1.0, self.work / self.between)

    def attempt(self, rates: Hours) -> Hours:
        """Hours of one interval and its save that nothing interrupts, on the nodes that are left at each rate."""
        return self._attempts(rates, self.intervals)

    def _attempts(self, rates: Hours, intervals: float | Hours) -> Hours:
        return self.work / (1 - self.repairs.missing(rates)) / intervals + self.save

    def mean(self) -> float:
        """Expected hours of the job, over its rates (Daly, equation 13, and the waits for repairs); the exponents are bounded."""
        return float(self.means(np.array([self.between]))[0])

    def means(self, between: Hours) -> Hours:
        """Expected hours of the job with each of several hours of work between saves."""
        intervals = np.maximum(1.0, self.work / between)
        if not self.rate:
            return self.work + intervals * self.save
        rates, intervals = self.rates, intervals[:, None]
        attempt = np.minimum(MOST_EXPONENT, rates * self._attempts(rates, intervals))
        recovery = np.minimum(MOST_EXPONENT, rates * self.recover)
        running = intervals * np.exp(recovery) * np.expm1(attempt) / rates
        waiting = rates * running * self.repairs.waited(rates) * self.repairs.wait_hours
        expected: Hours = (running + waiting).mean(axis=1)
        return expected


@cache
def factors(width: float) -> Hours:
    """Equally likely factors of a log-normal of that half-width at 90 %."""
    if not width:
        return np.ones(1)
    normal = NormalDist()
    return np.exp(width / NINETY * np.array([normal.inv_cdf((each + 0.5) / RATES) for each in range(RATES)]))


def best_between(times: JobTimes, *, least: float = 0.0) -> float:
    """Hours of work between saves, `least` of them, for which the expected hours are the fewest: all of it where nothing fails."""
    if not times.rate:
        return times.work
    shortest = min(times.work, max(least, times.save / 10 or LEAST_INTERVAL_H))
    tried = np.geomspace(shortest, times.work, INTERVALS_TRIED)
    return float(tried[times.means(tried).argmin()])


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """Hours of what failures cost, and their number, shape (draws,)."""

    fewer_replicas: Hours
    """The time that the work takes longer on fewer nodes."""
    lost: Hours
    recovering: Hours
    waiting: Hours
    failures: Hours


def draw_failures(random: np.random.Generator, times: JobTimes, work: Hours, count: Hours) -> Drawn:
    """The cost of failures to a job of so many hours of work, in `count` intervals."""
    rates = random.permutation(np.resize(times.rates, len(work)))
    slower = work / (1 - times.repairs.missing(rates)) - work
    lost, failed = _lost(random, count, (work + slower) / count + times.save, rates)
    recovering, again = _recovering(random, failed, times.recover, rates)
    failures = failed + again
    waits = random.binomial(failures.astype(np.int64), times.repairs.waited(rates)).astype(float)
    return Drawn(
        fewer_replicas=slower,
        lost=lost,
        recovering=recovering,
        waiting=random.gamma(waits) * times.repairs.wait_hours,
        failures=failures,
    )


def _lost(random: np.random.Generator, count: Hours, attempt: Hours, rates: Hours) -> tuple[Hours, Hours]:
    """Hours of attempts that failed on the way to so many whole ones, and their number."""
    through = np.exp(-np.minimum(MOST_EXPONENT, rates * attempt))
    failed = np.zeros(len(count))
    fails = through < 1
    failed[fails] = random.negative_binomial(count[fails], through[fails])
    return _until_failure(random, failed, attempt, rates), failed


def _recovering(random: np.random.Generator, failed: Hours, recover: float, rates: Hours) -> tuple[Hours, Hours]:
    """Hours of recovering from so many failures, and the failures on the way."""
    through = np.exp(-np.minimum(MOST_EXPONENT, rates * recover))
    again = np.zeros(len(failed))
    fails = (failed > 0) & (through < 1)
    again[fails] = random.negative_binomial(failed[fails], through[fails])
    return failed * recover + _until_failure(random, again, np.full(len(failed), recover), rates), again


def _until_failure(random: np.random.Generator, failed: Hours, whole: Hours, rates: Hours) -> Hours:
    """Sum of the hours that each of `failed` attempts ran, of at most `whole` hours: an exponential that is cut there."""
    sums = np.zeros(len(failed))
    some = failed > 0
    if not some.any():
        return sums
    rate, most, many = rates[some], whole[some], failed[some]
    share = -np.expm1(-rate * most)
    if many.sum() <= MOST_LOSSES:
        owner = np.repeat(np.arange(len(many)), many.astype(np.int64))
        drawn = -np.log1p(-random.random(len(owner)) * share[owner]) / rate[owner]
        sums[some] = np.bincount(owner, weights=drawn, minlength=len(many))
        return sums
    mean = 1 / rate - most * (1 - share) / share
    variance = 1 / rate**2 - most**2 * (1 - share) / share**2
    sums[some] = np.maximum(
        0.0, many * mean + np.sqrt(many * np.maximum(variance, 0.0)) * random.standard_normal(len(many))
    )
    return sums


def young(times: JobTimes) -> float:
    """√(2 · save · time between failures) (Young, CACM 17, 1974); infinite where nothing fails."""
    return math.sqrt(2 * times.save / times.rate) if times.rate else math.inf
