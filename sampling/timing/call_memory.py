"""Whether a device's memory holds a call while it is timed, by the call's fields alone."""

from __future__ import annotations

from sampling.call import Call
from sampling.hardware.cluster import Cluster
from sampling.units import GIB

MEMORY_SHARE = 0.6
"""Share of a device's memory that a call's own tensors may take; libraries' workspaces and fragments need the rest."""


def fits(call: Call, cluster: Cluster) -> bool:
    """Whether a GPU holds the call; ranks on a CPU share what the machine has, and their calls are small."""
    if cluster.gpu.kind == "cpu":
        return True
    return call.resident_bytes() <= MEMORY_SHARE * cluster.gpu.memory_gib * GIB
