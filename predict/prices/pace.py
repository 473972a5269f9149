"""Times at another pace of the machine than the reference pace of its rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from predict.interval import Interval, independent_causes
from predict.prices.cost_model import CallPhase, CostModel
from predict.prices.price_list import Prices
from regressors.bank.times import Times
from regressors.dataset.unexplained_pace import Unexplained
from sampling.hardware.cluster import Cluster
from sampling.store.pace import Resource, Response, pace_of

DISTURBANCE_WIDTH = 0.3
"""Share of what disturbed repeats add to a step that is not known: a reference is disturbed as often as calls are, not equally much.
Assumed, with the heavy tails of `tests/bench/synthetic_machine.py` in sight."""


@dataclass(frozen=True, slots=True)
class AtPace:
    """The times of `fitted` while the machine runs at `paces`, each the share of the reference pace at which it gives a resource."""

    fitted: CostModel
    paces: Mapping[Resource, float]

    def times(self, calls: Sequence[CallPhase], cluster: Cluster) -> list[Times | None]:
        answers = self.fitted.times(calls, cluster)
        return [time and self._at_pace(wanted, time, cluster) for wanted, time in zip(calls, answers, strict=True)]

    def _at_pace(self, wanted: CallPhase, time: Times, cluster: Cluster) -> Times:
        call, phase = wanted
        return Interval.of(time).scaled(1 / pace_of(call, phase, cluster, self.paces)).in_place_of(time)


def pace_facts_of(facts: Mapping[str, Any], cluster: Cluster) -> Mapping[str, Any]:
    """The facts of a profile about the pace with as many busy ranks as a node of the cluster has; empty without readings."""
    found: Mapping[str, Any] = facts.get("pace", {}).get(str(cluster.gpus_per_node), {})
    return found


def pace_spread(of_pace: Mapping[str, Any], paces: Mapping[Resource, float]) -> float:
    """Half-width in log time, at 90 %, that the machine's pace adds to work: what readings leave unexplained, at `paces`, and how the
    disturbances of calls add up; without paces also how far that at a moment lies from the reference pace."""
    if not of_pace:
        return 0.0
    left = Unexplained(**of_pace.get("unexplained", {}))
    mix, disturbance = of_pace.get("mix", {}), of_pace["disturbance"]
    disturbed = sum(share * (disturbance.get(resource, 1.0) - 1) for resource, share in mix.items())
    of_moment = of_pace["half_width"] if not paces else 0.0
    slowing = sum(share / paces.get(resource, 1.0) for resource, share in mix.items()) or 1.0
    return independent_causes(of_moment, left.half_width(math.log(slowing)), DISTURBANCE_WIDTH * abs(disturbed))


def reference_us_of(prices: Prices, cluster: Cluster) -> Mapping[Resource, float]:
    """The times of the reference calls at the reference pace of a profile's rows; none for rows of another device, or without readings."""
    found: Mapping[Resource, float] = _own_pace_facts(prices, cluster).get("reference_us", {})
    return found


def paces_beside(prices: Prices, cluster: Cluster, reference_us: Mapping[Resource, float]) -> dict[Resource, float]:
    """The pace by resource while the reference calls take `reference_us`, as a share of the reference pace of a profile's rows, as far
    as its rows follow the reference; empty where the profile knows no time of theirs."""
    usual_us = reference_us_of(prices, cluster)
    response = _own_pace_facts(prices, cluster).get("response", {})
    return {
        resource: Response(**response.get(resource, {}))(usual_us[resource] / now_us)
        for resource, now_us in reference_us.items()
        if resource in usual_us
    }


def _own_pace_facts(prices: Prices, cluster: Cluster) -> Mapping[str, Any]:
    return {} if prices.transfer_error else pace_facts_of(prices.provenance["samples"] or {}, cluster)


def paces_text(paces: Mapping[Resource, float]) -> str:
    """The paces in words: compute 0.83, memory 0.90."""
    return ", ".join(f"{resource} {pace:.2f}" for resource, pace in paces.items())
