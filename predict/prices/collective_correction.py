"""Collectives of groups that were not sampled: the analytic time of the two tiers, times the ratio that sampled groups show."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from statistics import median

from predict.interval import Interval
from predict.prices.collective_priors import collective_us, half_width
from predict.prices.cost_model import Asked, CostModel
from regressors.bank.times import Times
from sampling.collectives.kinds import KINDS, Collective, SendRecv
from sampling.hardware.cluster import Cluster

RANKS = (2, 4, 8, 16, 32)
"""Sizes of the groups that samplers time."""
SMALLEST, LARGEST = 2**16, 2**27
"""Sizes of the messages that they time; a message beyond has the ratio of the nearest."""


@dataclass(frozen=True, slots=True)
class CollectiveCorrection:
    """Ratios of a profile's samples over the two tiers, inside a node and between nodes, by size."""

    fitted: CostModel
    _ratios: dict[tuple[type[Collective], bool, int], float | None] = field(default_factory=dict)

    def time(self, call: Collective, cluster: Cluster) -> Times | None:
        """The network's time of a group, times the ratio for groups on the same tier; None where none of those was sampled."""
        ratio = self._ratio(call, cluster)
        if ratio is None:
            return None
        return Interval.from_log(ratio * collective_us(call, cluster), half_width(call)).as_times("extrapolated")

    def _ratio(self, call: Collective, cluster: Cluster) -> float | None:
        between = call.ranks > call.ranks_per_node
        size_bytes = 2 ** round(math.log2(min(LARGEST, max(SMALLEST, call.size_bytes))))
        key = type(call), between, size_bytes
        if key not in self._ratios:
            self._ratios[key] = self._found(call, between, size_bytes, cluster)
        return self._ratios[key]

    def _found(self, call: Collective, between: bool, size_bytes: int, cluster: Cluster) -> float | None:
        """The ratio for the same kind of collective where it was sampled, else for all kinds."""
        for kinds in ((type(call),), KINDS):
            probes = [probe for kind in kinds for probe in _groups(kind, between, size_bytes)]
            asked: list[Asked] = [(probe, "forward") for probe in probes]
            answers = self.fitted.times(asked, cluster)
            ratios = [
                time.median_us / collective_us(probe, cluster)
                for probe, time in zip(probes, answers, strict=True)
                if time and time.source == "measured"
            ]
            if ratios:
                return median(ratios)
        return None


def _groups(kind: type[Collective], between: bool, size_bytes: int) -> Iterator[Collective]:
    for ranks in (2,) if kind is SendRecv else RANKS:
        whole = kind(size_bytes=size_bytes, ranks=ranks, ranks_per_node=ranks)
        if not between:
            yield whole
            continue
        yield from (replace(whole, ranks_per_node=a_node) for a_node in (1, 2, 4, 8) if a_node < ranks)
