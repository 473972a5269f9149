"""Facts that the readings of a profile's sessions give of the machine's pace: its reference, how far a later moment lies from it, and
how far rows lie from what the readings explain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from regressors.dataset.pace_forecast import half_width
from regressors.dataset.unexplained_pace import unexplained
from regressors.features.arrays import Floats
from sampling.hardware.cluster import Cluster
from sampling.store.pace import RESOURCES, Resource, resource_shares

if TYPE_CHECKING:  # predicting needs no rows
    from sampling.store.pace_log import PaceLog
    from sampling.store.sample import Sample

RULE = 3
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
