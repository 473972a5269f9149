"""Facts that the readings of a profile's sessions give of the machine's pace: its reference, how far a later moment lies from it, and
how far rows lie from what the readings explain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from regressors.dataset.device_facts import Z_90
from regressors.features.arrays import Floats, Indices
from sampling.hardware.cluster import Cluster
from sampling.store.pace import MOST_RESIDUAL, RESOURCES, Resource, resource_shares

if TYPE_CHECKING:  # predicting needs no rows
    from sampling.store.pace_log import PaceLog
    from sampling.store.sample import Sample


RULE = 6
"""Version of the rule by which facts are made and readings compared with them; facts of another are not comparable."""
BIN_S = 10.0
"""Seconds whose readings count as one moment: their own noise averages out, and a burst of load lasts longer."""
LEAST_MOMENTS = 3
"""Moments below which nothing is known of a pace's spread."""


def pace_facts(log: PaceLog, good: Sequence[tuple[Sample, Cluster]]) -> dict[str, Any]:
    """JSON by busy ranks; empty without readings.

    - `reference_us`: the time of each reference call at the reference pace, on the slowest rank
    - `response`: how far rows follow a change of it
    - `disturbance`: by what factor disturbed repeats lengthen a step
    - `noise`: standard deviation, in log, of a reading
    - `mix`: shares of the rows' time by resource
    - `half_width`: in log, at 90 %, of the pace at a later moment
    - `unexplained`: what the readings leave unexplained
    """
    facts = {}
    for busy_ranks in sorted({key[1] for key in log.series}):
        beside = [row for row in good if row[0].busy_ranks == busy_ranks]
        series, mix = log.beside(busy_ranks), mix_of(beside) if beside else {}
        facts[str(busy_ranks)] = {
            "reference_us": {resource: of.slowest_reference_us for resource, of in series.items()},
            "response": {resource: asdict(log.response(busy_ranks, resource)) for resource in series},
            "disturbance": {resource: of.disturbance for resource, of in series.items()},
            "noise": {resource: of.noise for resource, of in series.items()},
            "mix": mix,
            "half_width": pace_half_width(log, busy_ranks, mix) if mix else 0.0,
            "unexplained": unexplained(beside).to_json(),
        }
    return facts


def pace_half_width(log: PaceLog, busy_ranks: int, mix: Mapping[Resource, float]) -> float:
    """Half-width in log time, at 90 %, of the pace of work of this mix at a later moment about the reference pace; 0 where too few
    moments were read."""
    at_s, log_pace = _moments(log, busy_ranks, mix)
    return half_width(at_s, log_pace) if len(at_s) >= LEAST_MOMENTS else 0.0


def mix_of(rows: Iterable[tuple[Sample, Cluster]]) -> dict[Resource, float]:
    """Shares of the time of rows that each resource takes."""
    total = dict.fromkeys(RESOURCES, 0.0)
    for sample, cluster in rows:
        for resource, share in resource_shares(sample.call, sample.phase, cluster).items():
            total[resource] += share * sample.time_us
    whole = sum(total.values())
    return {resource: value / whole for resource, value in total.items()}


def _moments(log: PaceLog, busy_ranks: int, mix: Mapping[Resource, float]) -> tuple[Floats, Floats]:
    """The seconds of each moment that was read, and the logarithm of the pace of work of this mix then, which waits for
    the slowest rank [moments]."""
    by_moment: dict[int, dict[Resource, list[float]]] = {}
    for resource, series in log.beside(busy_ranks).items():
        response = log.response(busy_ranks, resource)
        for at_s, time_us in zip(series.at_s, series.slowest_us, strict=True):
            of_moment = by_moment.setdefault(int(at_s // BIN_S), {})
            of_moment.setdefault(resource, []).append(math.log(response(series.slowest_reference_us / time_us)))
    found = sorted(by_moment.items())
    return (
        BIN_S * np.array([moment for moment, _ in found], dtype=np.float64),
        np.array([_mixed(of_moment, mix) for _, of_moment in found]),
    )


def _mixed(paces: Mapping[Resource, Iterable[float]], mix: Mapping[Resource, float]) -> float:
    weights = {resource: mix[resource] for resource in paces if mix[resource] > 0}
    total = sum(weights.values())
    return sum(share / total * float(np.median(list(paces[resource]))) for resource, share in weights.items())


# The part of the machine's pace that its readings leave unexplained: how far all rows of a moment are off together at their pace.
#
# Rows of one call at several moments are brought to the reference pace by the readings beside them. Where rows of other calls at the same
# moment are off the same way, the readings missed a part of the pace; so will the readings beside a step.

TOGETHER_S = 10.0
"""Seconds within which rows count as of one moment."""
MOST_BESIDE = 100
"""Rows of a moment that a row is compared with, so that the pairs of a long session fit in memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unexplained:
    """Standard deviations in log time of work at a moment whose pace was read: at the reference pace, and for each unit by which the
    logarithm of its pace differs from it."""

    at_reference: float = 0.0
    by_log_pace: float = 0.0

    def half_width(self, log_pace: float) -> float:
        """Half-width in log time at 90 % of work at a pace with this logarithm."""
        return Z_90 * math.hypot(self.at_reference, self.by_log_pace * log_pace)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def unexplained(rows: Sequence[tuple[Sample, Cluster]]) -> Unexplained:
    """The covariance of two rows of one moment and different calls, as a constant and a part that grows with both paces; neither is
    negative. A pair counts by the time of its rows, since steps are made of the long ones."""
    by_call: dict[Any, list[Sample]] = {}
    for sample, _ in rows:
        if sample.at_s is not None:
            by_call.setdefault(sample.key, []).append(sample)
    again = [of for of in by_call.values() if len(of) > 1]
    if len(again) < 2:
        return Unexplained()
    residual = np.concatenate([_residual(of) for of in again])
    of_call = np.repeat(np.arange(len(again)), [len(of) for of in again])
    flat = [sample for of in again for sample in of]
    log_pace = np.log([sample.pace for sample in flat])
    time_us = np.array([sample.time_us for sample in flat])
    first, second = _pairs(np.array([sample.at_s for sample in flat], dtype=np.float64))
    of_two = of_call[first] != of_call[second]
    first, second = first[of_two], second[of_two]
    if not len(first):
        return Unexplained()
    from scipy.optimize import nnls

    weight = np.sqrt(np.sqrt(time_us[first] * time_us[second]))
    paces = log_pace[first] * log_pace[second]
    found, _ = nnls(np.column_stack([weight, weight * paces]), weight * residual[first] * residual[second])
    return Unexplained(at_reference=math.sqrt(found[0]), by_log_pace=math.sqrt(found[1]))


def _residual(rows: Sequence[Sample]) -> Floats:
    """The distance in log of each row of a call, at the reference pace, from their mean, which takes a part of each with it."""
    log_us = np.log([sample.time_us * sample.pace for sample in rows])
    scale = math.sqrt(len(rows) / (len(rows) - 1))
    residual: Floats = np.clip(scale * (log_us - log_us.mean()), -MOST_RESIDUAL, MOST_RESIDUAL)
    return residual


def _pairs(at_s: Floats) -> tuple[Indices, Indices]:
    """The places of the two rows of each pair that is of one moment [pairs], each row with at most MOST_BESIDE that follow it."""
    order = np.argsort(at_s, kind="stable")
    ordered = at_s[order]
    after = np.searchsorted(ordered, ordered + TOGETHER_S, side="right") - np.arange(1, len(at_s) + 1)
    count = np.minimum(after, MOST_BESIDE)
    first = np.repeat(np.arange(len(at_s)), count)
    ahead = np.arange(len(first)) - np.repeat(np.cumsum(count) - count, count)
    return order[first], order[first + 1 + ahead]


# A forecast of the pace: how far it lies from the reference pace at a later moment, by the paces that the sessions saw.
#
# The logarithm of the pace is taken for a level with a wander about it that forgets (an Ornstein-Uhlenbeck process), read with noise.
# Neither the size of the wander nor its memory is known: a quiet session may be a calm machine or the calm of a slow one. The forecast
# weighs all of them by how well they explain the moments that were read (a Gaussian process, its settings integrated over a grid: Rasmussen
# and Williams, Gaussian Processes for Machine Learning, 2006, chapter 5), so that it is wide only where the readings leave room.

COVERAGE = 0.9
LATER_S = 3600.0
"""Seconds after the last reading for which the pace is forecast."""
MOST = math.log(2)
"""Largest half-width: no machine that is of use halves its pace."""
DEVIATIONS = np.geomspace(0.001, 0.2, 12)
"""Standard deviations of the wander, in log: from a machine at rest to one whose pace changes by half."""
USUAL_DEVIATION = 0.16
"""Below it, all are equally likely before a reading; above it, the less the larger, as a normal falls. Twice the wander of cloud machines
that changed by 30 % within the hour, set by simulated paths of that wander (40 each): after 150 s of a memory of 40, 180 and 600 s, 95, 75
and 68 % of later moments lie within the half-width, after 900 s of 180 and 600 s 98 and 85 %; at half the value 60 % for 180 s in 150 s."""
MEMORIES_S = np.geomspace(5, 1800, 8)
"""Seconds after which a pace is forgotten: from bursts of load to neighbours that stay for an hour. Equally likely before a reading."""
NOISES = np.geomspace(0.001, 0.1, 7)
"""Standard deviations of the noise of a moment's reading, in log. Equally likely before a reading."""
LEVEL_DEVIATION = 1.0
"""Standard deviation of the level about the reference pace, in log: hardly a bound."""
MOST_MOMENTS = 200
"""Moments that the forecast is made from; longer sessions are thinned evenly to as many."""


def half_width(at_s: Floats, log_pace: Floats) -> float:
    """Half-width in log, at 90 %, of the pace LATER_S after the last of the moments `at_s` [moments] about the reference pace, of which
    `log_pace` [moments] are the logarithms of the shares then."""
    if len(at_s) > MOST_MOMENTS:
        kept = np.linspace(0, len(at_s) - 1, MOST_MOMENTS).round().astype(int)
        at_s, log_pace = at_s[kept], log_pace[kept]
    apart = np.abs(at_s[:, None] - at_s[None, :])
    later = at_s.max() + LATER_S - at_s
    weights, means, deviations = [], [], []
    for memory_s in MEMORIES_S:
        kept_wander, kept_later = np.exp(-apart / memory_s), np.exp(-later / memory_s)
        for deviation, noise in product(DEVIATIONS, NOISES):
            common = deviation**2 * kept_wander + LEVEL_DEVIATION**2
            root = np.linalg.cholesky(common + noise**2 * np.eye(len(at_s)))
            whitened = np.linalg.solve(
                root, np.column_stack([log_pace, deviation**2 * kept_later + LEVEL_DEVIATION**2])
            )
            paces, crossed = whitened.T
            weights.append(
                -float(paces @ paces) / 2 - float(np.log(np.diag(root)).sum()) - (deviation / USUAL_DEVIATION) ** 2 / 2
            )
            means.append(float(crossed @ paces))
            deviations.append(math.sqrt(max(deviation**2 + LEVEL_DEVIATION**2 - float(crossed @ crossed), 1e-12)))
    likelihoods = np.exp(np.array(weights) - max(weights))
    return min(MOST, _reach(likelihoods / likelihoods.sum(), np.array(means), np.array(deviations)))


def _reach(weights: Floats, means: Floats, deviations: Floats) -> float:
    """The distance from 0 within which a mixture of normals has COVERAGE of its weight."""
    from scipy.special import ndtr

    low, high = 0.0, MOST
    for _ in range(30):
        middle = (low + high) / 2
        within = float(weights @ (ndtr((middle - means) / deviations) - ndtr((-middle - means) / deviations)))
        low, high = (middle, high) if within < COVERAGE else (low, middle)
    return high
