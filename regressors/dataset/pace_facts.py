"""Facts that the readings of a profile's sessions give of the machine's pace: its reference, and how far a later moment lies from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from regressors.features.arrays import Floats
from sampling.hardware.cluster import Cluster
from sampling.store.pace import RESOURCES, PaceLog, Resource, resource_shares
from sampling.store.sample import Sample

BIN_S = 10.0
"""Seconds whose readings count as one moment: their own noise averages out, and a burst of load lasts longer."""
COVERAGE = 0.9
MOST = math.log(2)
"""Largest half-width: few readings leave a pace unknown, but no machine that is of use halves its pace."""
UNSEEN_MEMORY = 2.0
"""Autocorrelation over that seen in a session, whose own mean hides the slow part. Of Ornstein-Uhlenbeck paths with a memory of 40 to 180 s
and sessions of 150 to 900 s, 79 to 92 % of later moments then lie within the half-width (64 to 86 % without); of a memory of 600 s in
150 s, 66 %: nothing measured shows it."""
LEAST_MOMENTS = 2.0
"""Fewest independent moments that a session counts as, however slowly its pace moved."""


def pace_facts(log: PaceLog, good: Sequence[tuple[Sample, Cluster]]) -> dict[str, Any]:
    """JSON by busy ranks: `reference_us` of each reference call at the reference pace, their `disturbance` in a step as a factor,
    and the `half_width` in log time, at 90 %, of the pace at a later moment. Empty without readings."""
    facts = {}
    for busy_ranks in sorted({key[1] for key in log.series}):
        beside = [row for row in good if row[0].busy_ranks == busy_ranks]
        facts[str(busy_ranks)] = {
            "reference_us": {resource: series.reference_us for resource, series in log.beside(busy_ranks).items()},
            "disturbance": {resource: series.disturbance for resource, series in log.beside(busy_ranks).items()},
            "half_width": pace_half_width(log, busy_ranks, mix_of(beside)) if beside else 0.0,
        }
    return facts


def pace_half_width(log: PaceLog, busy_ranks: int, mix: Mapping[Resource, float]) -> float:
    """Half-width in log time, at 90 %, of the pace of work of this mix at a later moment about the reference pace.

    It is Student's prediction interval of a normal, with as many degrees of freedom as independent moments were seen, by the
    autocorrelation of the readings: a pace that moved slowly through a short session may go far beyond what the session saw.
    """
    found = _moments(log, busy_ranks, mix)
    if len(found) < 3:
        return 0.0
    independent = max(LEAST_MOMENTS, len(found) / _correlation_time(found))
    from scipy.stats import t

    deviation = math.sqrt(float(np.mean((found - np.median(found)) ** 2)) * independent / (independent - 1))
    reach = float(t.ppf((1 + COVERAGE) / 2, independent - 1))
    return min(MOST, reach * deviation * math.sqrt(1 + 1 / independent))


def mix_of(rows: Iterable[tuple[Sample, Cluster]]) -> dict[Resource, float]:
    """Shares of the time of rows that each resource takes."""
    total = dict.fromkeys(RESOURCES, 0.0)
    for sample, cluster in rows:
        for resource, share in resource_shares(sample.call, sample.phase, cluster).items():
            total[resource] += share * sample.time_us
    whole = sum(total.values())
    return {resource: value / whole for resource, value in total.items()}


def _moments(log: PaceLog, busy_ranks: int, mix: Mapping[Resource, float]) -> Floats:
    """The logarithm of the pace of work of this mix at each moment that was read [moments]."""
    by_moment: dict[int, dict[Resource, list[float]]] = {}
    for resource, series in log.beside(busy_ranks).items():
        for at_s, time_us in zip(series.at_s, series.time_us, strict=True):
            of_moment = by_moment.setdefault(int(at_s // BIN_S), {})
            of_moment.setdefault(resource, []).append(math.log(series.reference_us / time_us))
    return np.array([_mixed(of_moment, mix) for _, of_moment in sorted(by_moment.items())])


def _mixed(paces: Mapping[Resource, Iterable[float]], mix: Mapping[Resource, float]) -> float:
    weights = {resource: mix[resource] for resource in paces if mix[resource] > 0}
    total = sum(weights.values())
    return sum(share / total * float(np.median(list(paces[resource]))) for resource, share in weights.items())


def _correlation_time(found: Floats) -> float:
    """Moments that count as one: 1 + 2 Σ autocorrelation, up to the first lag at which it is hardly positive (Geyer, Statistical
    Science 7, 1992), the sum UNSEEN_MEMORY times."""
    centred = found - found.mean()
    variance = float(np.mean(centred**2))
    if variance == 0:
        return 1.0
    total = 1.0
    for lag in range(1, len(found)):
        correlation = float(np.mean(centred[lag:] * centred[:-lag])) / variance
        if correlation <= 0.05:
            break
        total += 2 * UNSEEN_MEMORY * correlation
    return total
