"""The log of a machine's pace: the readings of reference calls, and the pace at a moment by them.

A session times short reference calls between its calls, and keeps the readings in `pace.jsonl` of the profile. The pace at a row is
the reference's usual time over its time then, apart from the noise of single readings; a row's time multiplied by its pace is its time
at the reference pace.
"""

from __future__ import annotations

import json
import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

from sampling.errors import UNREADABLE
from sampling.hardware.cluster import Cluster
from sampling.store.pace import RESOURCES, Resource, Response, Responses, resource_shares
from sampling.store.sample import Sample

LOG = "pace.jsonl"
TIMED_AS = 2
"""Version of the way in which references are timed (`sampling.timing.pace`): by another they take other times at the same pace."""
MOST_DISTURBED = 5.0
"""Largest slowdown that a repeat counts with in a mean, since a single one may take any time."""
SPAN = 6
"""Readings one after the other whose mean disturbance is that of a step: 30 repeats of a product, as a small step has calls."""
MOST_WAIT = 6.0
"""Wait for the slowest rank, in waits of the quarter of the moments with the least, from which on a rank straggles: the wait of two ranks
of normal noise, a folded normal, has 0.32 deviations there, 0.67 at its median, and is below 1.9 at 94 % of the moments."""
LEAST_BESIDE = 3
"""Readings beside steps whose mean disturbance says something of these."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PaceReading:
    """The time of a reference call at a moment, while `busy_ranks` ranks of the node ran."""

    at_s: float
    """Seconds since the epoch."""
    session: int
    busy_ranks: int
    resource: Resource
    ranks: int
    """Ranks of the collective; 1 for the references of a device alone."""
    size: int
    """Side of the square product, or bytes of the pass or message."""
    time_us: float
    """Median of the undisturbed repeats, in the mean over the ranks."""
    slowest_us: float
    """The same of the slowest rank, for which the others wait in a step."""
    mean_us: float
    """Mean of all repeats, each of at most MOST_DISTURBED times the median."""
    timed_as: int = 1
    """TIMED_AS of its session; the first for a reading that does not say."""

    @property
    def key(self) -> Key:
        return self.resource, self.busy_ranks, self.ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class References:
    """The reference calls beside a measured step: the undisturbed time of each on the slowest rank, for which a step waits, and the mean
    of its repeats over their undisturbed time, which other work lengthens by its share of caches and bandwidth."""

    time_us: Mapping[Resource, float]
    disturbance: Mapping[Resource, float] = field(default_factory=dict)
    waited_share: float = 0.0
    """Share of the steps' time in which their slowest rank waited for a processor that something else had."""

    @classmethod
    def of(cls, readings: Sequence[PaceReading], beside: Sequence[PaceReading] = ()) -> References:
        """Summarises readings around the steps, of which those `beside` the steps that count show what disturbed these; all, where
        those are fewer than LEAST_BESIDE."""
        by_resource = {each: [one for one in readings if one.resource == each] for each in RESOURCES}
        near = {each: [one for one in beside if one.resource == each] for each in RESOURCES}
        return cls(
            time_us={
                resource: statistics.median(one.slowest_us for one in of) for resource, of in by_resource.items() if of
            },
            disturbance={
                resource: disturbance_of(near[resource] if len(near[resource]) >= LEAST_BESIDE else of)
                for resource, of in by_resource.items()
                if of
            },
        )


def disturbance_of(readings: Sequence[PaceReading]) -> float:
    """The mean of repeats over their undisturbed time, in the median over spans of SPAN readings in the order of time: disturbances add up
    in a step, and the step that counts is the median one."""
    factors = [reading.mean_us / reading.time_us for reading in readings]
    spans = [factors[first : first + SPAN] for first in range(0, max(1, len(factors) - SPAN + 1), SPAN)]
    return statistics.median(map(statistics.fmean, spans))


Key: TypeAlias = tuple[Resource, int, int]
"""The reference call that a reading is of: what it is slowed by, the busy ranks of the node, the ranks of its collective."""


def append_reading(directory: Path, reading: PaceReading) -> None:
    with (directory / LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(reading)) + "\n")


def read_log(directory: Path) -> list[PaceReading]:
    """The readings of a profile, in the order of time, without lines that cannot be read."""
    path = directory / LOG
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return sorted((found for line in lines if (found := _reading(line))), key=lambda reading: reading.at_s)


def _reading(line: str) -> PaceReading | None:
    try:
        return reading_of(json.loads(line))
    except UNREADABLE:
        return None


def reading_of(fields: Mapping[str, Any]) -> PaceReading:
    """The reading in what was written of it; one of UNREADABLE where that is not sound."""
    reading = PaceReading(**fields)
    times_us = (reading.time_us, reading.slowest_us, reading.mean_us)
    if not (
        reading.resource in RESOURCES
        and math.isfinite(reading.at_s)
        and all(0 < time_us < math.inf for time_us in times_us)
        and all(isinstance(value, int) for value in (reading.session, reading.busy_ranks, reading.ranks, reading.size))
    ):
        raise ValueError(f"{fields} is not a reading of a pace")
    return reading


class PaceLog:
    """The readings of a profile, by reference call, and how far calls follow them: in full where `responses` has no entry. Readings of
    another size than the last are of a call that is a reference no more, and are left out like those that were timed otherwise."""

    def __init__(self, readings: Iterable[PaceReading], responses: Responses | None = None) -> None:
        self.responses = responses or {}
        by_key: dict[Key, list[PaceReading]] = {}
        comparable = [reading for reading in readings if reading.timed_as == TIMED_AS]
        for reading in sorted(comparable, key=lambda reading: reading.at_s):
            by_key.setdefault(reading.key, []).append(reading)
        self.series = {
            key: Series.of([reading for reading in of_key if reading.size == of_key[-1].size])
            for key, of_key in by_key.items()
        }

    def disturbance(self, sample: Sample, cluster: Cluster) -> float:
        """The mean time of a row's call over its undisturbed time, as a factor, by the references: a step is made of many calls, whose
        disturbances add up."""
        found = self.beside(sample.busy_ranks, sample.call.group_size)
        shares = resource_shares(sample.call, sample.phase, cluster)
        return sum(share * (found[each].disturbance if each in found else 1.0) for each, share in shares.items())

    def of_session(self, session: int) -> list[dict[str, Any]]:
        """JSON of a session's readings by reference call: the pace in its median and between its deciles, as shares of the reference
        pace, and how many readings there are."""
        found = []
        for (resource, busy_ranks, ranks), series in self.series.items():
            paces = sorted(
                series.reference_us / time_us
                for of, time_us in zip(series.sessions, series.time_us, strict=True)
                if of == session
            )
            if paces:
                low, median, high = (paces[round(share * (len(paces) - 1))] for share in (0.1, 0.5, 0.9))
                named = {"resource": resource, "busy_ranks": busy_ranks, "ranks": ranks}
                found.append(named | {"readings": len(paces), "pace": median, "low": low, "high": high})
        return found

    def response(self, busy_ranks: int, resource: Resource) -> Response:
        return self.responses.get((busy_ranks, resource), Response())

    def beside(self, busy_ranks: int, group: int = 1) -> dict[Resource, Series]:
        """The readings with as many busy ranks, by resource: of the collective over a group of this size where there is one."""
        keys = sorted(self.series, key=lambda key: key[2] == group)
        return {key[0]: self.series[key] for key in keys if key[1] == busy_ranks}


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """The readings of one reference call in the order of time: the moment of each, its time in the mean over the ranks and on the slowest,
    its session. The time at the reference pace is the median over all moments, since most are quiet, and that of the slowest rank is more
    by as much as at the median of the moments in which no rank straggles; `disturbance` is the mean of repeats over their undisturbed
    time."""

    at_s: Sequence[float]
    time_us: Sequence[float]
    slowest_us: Sequence[float]
    sessions: Sequence[int]
    reference_us: float
    slowest_reference_us: float
    disturbance: float
    log_pace: Sequence[float]
    """Log of the pace at each moment, apart from the noise of its reading."""

    @classmethod
    def of(cls, readings: Sequence[PaceReading]) -> Series:
        reference_us = statistics.median(reading.time_us for reading in readings)
        waits = sorted(max(0.0, reading.slowest_us / reading.time_us - 1) for reading in readings)
        usual = statistics.median(wait for wait in waits if wait <= MOST_WAIT * waits[len(waits) // 4])
        return cls(
            at_s=[reading.at_s for reading in readings],
            time_us=[reading.time_us for reading in readings],
            slowest_us=[reading.slowest_us for reading in readings],
            sessions=[reading.session for reading in readings],
            reference_us=reference_us,
            slowest_reference_us=reference_us * (1 + usual),
            disturbance=disturbance_of(readings),
            log_pace=[
                log_pace
                for _, of_session in groupby(readings, key=attrgetter("session"))
                for log_pace in smoothed([math.log(reference_us / reading.time_us) for reading in of_session])
            ],
        )

    @property
    def noise(self) -> float:
        """Standard deviation, in log, of one reading of the slowest rank about those beside it, by the median distance of neighbours."""
        return neighbours_deviation([math.log(time_us) for time_us in self.slowest_us])

    def pace_at(self, at_s: float, session: int) -> float:
        """The pace at a moment of a session: between those at the readings before and after it; 1 in a session without readings."""
        if session not in self.sessions:
            return 1.0
        after = bisect_left(self.at_s, at_s)
        if after in (0, len(self.at_s)):
            return math.exp(self.log_pace[min(after, len(self.at_s) - 1)])
        before_s, after_s = self.at_s[after - 1 : after + 1]
        before, behind = self.log_pace[after - 1 : after + 1]
        return math.exp(before + (behind - before) * (at_s - before_s) / (after_s - before_s))


# The level of a noisy series: how fast the machine ran at each reading, apart from the noise of the readings themselves.
#
# A reading errs by 5 to 15 % while the machine's speed moves as much within minutes. The local level model (Durbin and Koopman, Time Series
# Analysis by State Space Methods, 2012, chapter 2) takes the level to walk at random and the readings to lie about it: what the
# readings before and after a moment say of it counts by how near they are. How fast the level walks is what predicts each
# reading best from those before it.

MOST_SURPRISE = 2.5
"""Deviations from what is expected beyond which a reading counts as at this distance: a burst of load is not a new level."""
WALKS = tuple(10 ** (exponent / 2) for exponent in range(-8, 5))
"""Variances of the level's steps from one reading to the next, as shares of that of a reading's noise, that are tried."""
MEDIAN_APART = 0.6745 * math.sqrt(2)
"""Median distance of two normal values, in their standard deviations."""


def neighbours_deviation(values: Sequence[float]) -> float:
    """Standard deviation of one value about those beside it, by the median distance of neighbours; 0 of a single value."""
    apart = [abs(after - before) for before, after in pairwise(values)]
    return statistics.median(apart) / MEDIAN_APART if apart else 0.0


def smoothed(values: Sequence[float]) -> list[float]:
    """The level at each value of a series."""
    noise = neighbours_deviation(values)
    if not noise:
        return list(values)
    return min((_Filtered(values, walk, noise) for walk in WALKS), key=lambda one: one.surprise).levels()


class _Filtered:
    """The level at each value by those up to it (the Kalman filter), if it walks by `walk`; variances are shares of the noise's."""

    def __init__(self, values: Sequence[float], walk: float, noise: float) -> None:
        usual, most = statistics.median(values[:5]), MOST_SURPRISE * noise
        self.level = [min(usual + most, max(usual - most, values[0]))]
        self.variance, self.expected_variance = [1.0], [1.0]
        self.surprise = 0.0
        """Sum of the distances of the values from those expected; a burst of load counts the same whatever the walk."""
        for value in values[1:]:
            expected_variance = self.variance[-1] + walk
            most = MOST_SURPRISE * noise * math.sqrt(expected_variance + 1)
            apart = value - self.level[-1]
            self.surprise += min(abs(apart), 2 * MOST_SURPRISE * noise)
            gain = expected_variance / (expected_variance + 1)
            self.level.append(self.level[-1] + gain * max(-most, min(most, apart)))
            self.variance.append((1 - gain) * expected_variance)
            self.expected_variance.append(expected_variance)

    def levels(self) -> list[float]:
        """The levels by the values after each as well (the smoother of Rauch, Tung and Striebel)."""
        found = [self.level[-1]]
        for place in range(len(self.level) - 2, -1, -1):
            share = self.variance[place] / self.expected_variance[place + 1]
            found.append(self.level[place] + share * (found[-1] - self.level[place]))
        return found[::-1]
