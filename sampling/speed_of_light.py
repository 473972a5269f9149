"""The roofline bound of a call: no device of these peaks can do it faster (Williams et al., CACM 52(4), 2009)."""

from __future__ import annotations

from sampling.call import Call, Phase
from sampling.hardware import Cluster
from sampling.operators.base import Operator


def physical_bound_us(call: Call, phase: Phase, cluster: Cluster) -> float:
    """A time that no measurement can honestly beat: the slowest resource at its peak, parts one after the other.

    Memory does not count where a cache holds all that is moved, nor communication inside a cell, which may overlap.
    """
    parts = call.parts(phase)
    if parts:
        operators = [part for part in parts if isinstance(part.call, Operator)]
        return sum(part.count * physical_bound_us(part.call, part.phase, cluster) for part in operators)
    terms = call.terms(phase, cluster)
    if isinstance(call, Operator) and call.bytes_moved(phase) < cluster.gpu.cache_mib * 2**20:
        terms = {name: value for name, value in terms.items() if not name.endswith("_memory")}
    return max(terms.values(), default=0.0)
