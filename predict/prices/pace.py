"""Times at another pace of the machine than the reference pace of its rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from predict.interval import Interval, independent_causes
from predict.prices.cost_model import CallPhase, CostModel
from predict.prices.price_list import Prices
from regressors.bank.times import Times
from regressors.dataset.device_facts import Z_90
from regressors.dataset.pace_facts import RULE, Unexplained
from sampling.hardware.cluster import Cluster
from sampling.number_text import significant
from sampling.store.pace import FEWEST_READINGS, Resource, Response, pace_of

if TYPE_CHECKING:  # predicting reads no pace
    from sampling.store.pace_log import References

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


def followed(of_pace: Mapping[str, Any], shown: Mapping[Resource, float]) -> dict[Resource, float]:
    """The paces of calls where the references show those of `shown`, as far as a profile's rows follow them."""
    return {resource: _response(of_pace, resource)(pace) for resource, pace in shown.items()}


def pace_spread(of_pace: Mapping[str, Any], shown: Mapping[Resource, float]) -> float:
    """Half-width in log time, at 90 %, that the machine's pace adds to work: what readings leave unexplained where the references show the
    paces `shown`, how far calls follow these, and how the disturbances of calls add up; without paces also how far that at a moment lies
    from the reference pace."""
    if not of_pace:
        return 0.0
    left = Unexplained(**of_pace.get("unexplained", {}))
    mix, disturbance = of_pace.get("mix", {}), of_pace["disturbance"]
    disturbed = sum(share * (disturbance.get(resource, 1.0) - 1) for resource, share in mix.items())
    of_moment = of_pace["half_width"] if not shown else 0.0
    paces = followed(of_pace, shown)
    slowing = sum(share / paces.get(resource, 1.0) for resource, share in mix.items()) or 1.0
    of_paces = [
        Z_90 * mix.get(resource, 0.0) / slowing / paces[resource] * _deviation(of_pace, resource, pace)
        for resource, pace in shown.items()
    ]
    return independent_causes(
        of_moment, left.half_width(math.log(slowing)), *of_paces, DISTURBANCE_WIDTH * abs(disturbed)
    )


def _deviation(of_pace: Mapping[str, Any], resource: Resource, shown: float) -> float:
    """Standard deviation in log of the pace of calls where the reference shows this one: by how far they follow it, and by the noise of
    the median of FEWEST_READINGS."""
    response = _response(of_pace, resource)
    noise = of_pace.get("noise", {}).get(resource, 0.0) * math.sqrt(math.pi / 2 / FEWEST_READINGS)
    return math.hypot(response.deviation_at(shown), response.within * noise)


def _response(of_pace: Mapping[str, Any], resource: Resource) -> Response:
    """The response of calls to a reference: in full where the profile was fitted before that was known."""
    return Response(**of_pace.get("response", {}).get(resource, {}))


def reference_us_of(prices: Prices, cluster: Cluster) -> Mapping[Resource, float]:
    """The times of the reference calls at the reference pace of a profile's rows; none for rows of another device, or without readings."""
    found: Mapping[Resource, float] = _own_pace_facts(prices, cluster).get("reference_us", {})
    return found


def paces_shown(prices: Prices, cluster: Cluster, reference_us: Mapping[Resource, float]) -> dict[Resource, float]:
    """The paces that the reference calls show while they take `reference_us`, as shares of the reference pace of a profile's rows; empty
    where the profile knows no time of theirs."""
    usual_us = reference_us_of(prices, cluster)
    return {resource: usual_us[resource] / now_us for resource, now_us in reference_us.items() if resource in usual_us}


def paces_beside(prices: Prices, cluster: Cluster, reference_us: Mapping[Resource, float]) -> dict[Resource, float]:
    """The pace of calls by resource while the reference calls take `reference_us`; empty where the profile knows no time of theirs."""
    return followed(_own_pace_facts(prices, cluster), paces_shown(prices, cluster, reference_us))


def disturbance_beside(prices: Prices, cluster: Cluster, references: References) -> float:
    """The time of a step over that which a profile's rows count with, as other work disturbs the references beside it and takes
    processors from it."""
    of_pace = _own_pace_facts(prices, cluster)
    usual, mix = of_pace.get("disturbance", {}), of_pace.get("mix", {})
    now = {**usual, **references.disturbance}
    work, usual_work = (sum(share * of.get(resource, 1.0) for resource, share in mix.items()) for of in (now, usual))
    return (work / usual_work if mix else 1.0) / (1 - references.waited_share)


def _own_pace_facts(prices: Prices, cluster: Cluster) -> Mapping[str, Any]:
    """The facts of the rows of this machine; none by an older rule, whose references are others."""
    facts = prices.provenance["samples"] or {}
    return {} if prices.transfer_error or facts.get("pace_rule") != RULE else pace_facts_of(facts, cluster)


def paces_text(paces: Mapping[Resource, float]) -> str:
    """The paces in words: compute 0.83, memory 0.90."""
    return ", ".join(f"{resource} {significant(pace)}" for resource, pace in paces.items())
