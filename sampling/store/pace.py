"""The pace of a machine: how fast it runs at a moment, as a share of its reference pace, by what slows it; and of calls at that pace.

A machine's speed moves by clocks, power, neighbours on its memory and its network, by 5 to 30 % within the hour. Short reference calls
show it (`sampling.store.pace_log`); other calls follow these in full or in part.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from sampling.arithmetic.operator import Operator
from sampling.call import Call, Phase
from sampling.hardware.cluster import Cluster

Resource: TypeAlias = Literal["compute", "memory", "wire"]
RESOURCES: tuple[Resource, ...] = get_args(Resource)
FEWEST_READINGS = 8
"""Readings whose median a pace is, at least."""
MOST_RESIDUAL = 0.3
"""Distance in log from the other rows of its call beyond which a row counts as at this distance: a stall says nothing of a pace."""


def resource_shares(call: Call, phase: Phase, cluster: Cluster) -> Mapping[Resource, float]:
    """Shares of a call's time that each resource takes, by its roofline terms at the efficiencies of the hardware file."""
    shares = dict.fromkeys(RESOURCES, 0.0)
    for name, value in call.terms(phase, cluster).items():
        kind, _, what = name.rpartition("_")
        resource: Resource = "compute" if what == "compute" else "memory" if what == "memory" else "wire"
        efficiency = cluster.gpu.efficiency.get("elementwise" if resource == "memory" else kind, 1.0)
        shares[resource] += value / efficiency
    if not isinstance(call, Operator) and not sum(shares.values()):
        shares["wire"] = 1.0
    total = sum(shares.values())
    return {name: value / total for name, value in shares.items()} if total else {**shares, "compute": 1.0}


def pace_of(call: Call, phase: Phase, cluster: Cluster, paces: Mapping[Resource, float]) -> float:
    """The pace of a call while each resource has its own; 1 for a resource without readings."""
    shares = resource_shares(call, phase, cluster)
    return 1 / sum(share / paces.get(resource, 1.0) for resource, share in shares.items())


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """The part of a reference's change of pace that calls follow: the share `within` up to `reach`, in log, all beyond it."""

    within: float = 1.0
    reach: float = 0.0
    deviation: float = 0.0
    """Standard deviation of `within`, as far as rows show it."""

    def __call__(self, pace: float) -> float:
        """The pace at which calls run where the reference shows this one."""
        change = math.log(pace)
        return math.exp(change - (1 - self.within) * self._seen(change))

    def deviation_at(self, pace: float) -> float:
        """Standard deviation, in log, of the pace of calls where the reference shows this one: of the change within reach by that of the
        share, and of the change beyond by the distance between the two shares that it may count by, `within` and all."""
        change = math.log(pace)
        seen = self._seen(change)
        return math.hypot(self.deviation * seen, math.hypot(1 - self.within, self.deviation) * (change - seen))

    def _seen(self, change: float) -> float:
        """The part of a change, in log, that is within reach."""
        return min(self.reach, max(-self.reach, change))


Responses: TypeAlias = Mapping[tuple[int, Resource], Response]
"""The responses by busy ranks and resource (`sampling.store.paced_rows`)."""
