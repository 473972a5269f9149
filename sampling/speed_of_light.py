"""The roofline time of a call: no device of these peaks can do it faster (Williams et al., CACM 52(4), 2009)."""

from __future__ import annotations

from sampling.call import Call, Phase
from sampling.hardware import Cluster
from sampling.operators.base import Operator


def roofline_us(call: Call, phase: Phase, cluster: Cluster) -> float:
    """Slowest resource of an atomic call, in µs; a composite is the sum of its parts, one after the other."""
    parts = call.parts(phase)
    if parts:
        return sum(part.count * roofline_us(part.call, part.phase, cluster) for part in parts)
    return max(call.terms(phase, cluster).values())


def physical_bound_us(call: Call, phase: Phase, cluster: Cluster) -> float:
    """A time that no measurement can honestly beat: the roofline, without the memory term where a cache holds it all."""
    parts = call.parts(phase)
    if parts:
        return sum(part.count * physical_bound_us(part.call, part.phase, cluster) for part in parts)
    terms = call.terms(phase, cluster)
    if isinstance(call, Operator) and call.bytes_moved(phase) < cluster.gpu.cache_mib * 2**20:
        terms = {name: value for name, value in terms.items() if not name.endswith("_memory")}
    return max(terms.values(), default=0.0)
