"""Times at another pace of the machine than the reference pace of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from predict.interval import Interval
from predict.prices.cost_model import Asked, CostModel
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
