"""CostModel: what answers how long calls take on a cluster. Sampled and analytic models are both one."""

from collections.abc import Sequence
from typing import Protocol

from regressors.bank.times import Times
from sampling.call import Call, Phase
from sampling.hardware.cluster import Cluster

CallPhase = tuple[Call, Phase]


class CostModel(Protocol):
    """Times of many calls on a cluster, None where the model knows nothing of a call."""

    def times(self, calls: Sequence[CallPhase], cluster: Cluster) -> Sequence[Times | None]: ...
