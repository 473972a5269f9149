"""Times at another pace of the machine than the reference pace of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from predict.interval import Interval
from predict.prices.cost_model import Asked, CostModel
from predict.prices.price_list import Prices
from regressors.bank.times import Times
from sampling.hardware.cluster import Cluster
from sampling.store.pace import Resource, pace_of


@dataclass(frozen=True, slots=True)
class AtPace:
    """The times of `fitted` while the machine runs at `paces`, each the share of the reference pace at which it gives a resource."""

    fitted: CostModel
    paces: Mapping[Resource, float]

    def times(self, calls: Sequence[Asked], cluster: Cluster) -> list[Times | None]:
        answers = self.fitted.times(calls, cluster)
        return [time and self._at_pace(asked, time, cluster) for asked, time in zip(calls, answers, strict=True)]

    def _at_pace(self, asked: Asked, time: Times, cluster: Cluster) -> Times:
        call, phase = asked
        return Interval.of(time).scaled(1 / pace_of(call, phase, cluster, self.paces)).in_place_of(time)


def reference_us_of(prices: Prices, cluster: Cluster) -> Mapping[Resource, float]:
    """The times of the reference calls at the reference pace of a profile's rows; none for rows of another device, or without readings."""
    if prices.transfer_error:
        return {}
    of_pace = (prices.provenance["samples"] or {}).get("pace", {})
    found: Mapping[Resource, float] = of_pace.get(str(cluster.gpus_per_node), {}).get("reference_us", {})
    return found


def paces_beside(prices: Prices, cluster: Cluster, reference_us: Mapping[Resource, float]) -> dict[Resource, float]:
    """The pace by resource while the reference calls take `reference_us`, as a share of the reference pace of a profile's rows; empty
    where the profile knows no time of theirs."""
    usual_us = reference_us_of(prices, cluster)
    return {resource: usual_us[resource] / now_us for resource, now_us in reference_us.items() if resource in usual_us}


def paces_text(paces: Mapping[Resource, float]) -> str:
    """The paces in words: compute 0.83, memory 0.90."""
    return ", ".join(f"{resource} {pace:.2f}" for resource, pace in paces.items())
