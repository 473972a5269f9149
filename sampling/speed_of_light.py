"""The roofline bound of a call: no device of these peaks can do it faster (Williams et al., CACM 52(4), 2009)."""

from __future__ import annotations

from dataclasses import replace

from sampling.arithmetic.operator import Operator
from sampling.call import Call, Phase
from sampling.collectives.kinds import Collective
from sampling.hardware.cluster import Cluster

WIRE_SLACK = 2.0
"""How much faster than a ring on the stated link a collective may be: a switch that reduces and copies (NVLink SHARP) lets
each byte pass a rank's link once, where a ring's all-reduce sends it twice."""


def physical_bound_us(call: Call, phase: Phase, cluster: Cluster) -> float:
    """A time that no measurement can honestly beat: the slowest resource at its peak, parts one after the other.

    Memory does not count where a cache holds all that is moved, nor communication inside a cell, which may overlap, nor
    latencies, which are nominal: of a message (small ones take other ways than a ring), of waking threads.
    """
    return _bound_us(call, phase, replace(cluster, gpu=cluster.gpu.at_its_fastest()))


def _bound_us(call: Call, phase: Phase, cluster: Cluster) -> float:
    parts = call.parts(phase)
    if parts:
        operators = [part for part in parts if isinstance(part.call, Operator)]
        return sum(part.count * _bound_us(part.call, part.phase, cluster) for part in operators)
    terms = call.terms(phase, cluster)
    if isinstance(call, Collective):
        # the ranks of a node may share the way of all of them to other nodes
        links = 1 if call.ranks <= call.ranks_per_node else call.ranks_per_node
        return terms["wire"] / (WIRE_SLACK * links)
    compute_us = max((value for name, value in terms.items() if name.endswith("_compute")), default=0.0)
    least_bytes = call.least_bytes(phase) if isinstance(call, Operator) else 0.0
    in_cache = least_bytes < cluster.gpu.cache_mib * 2**20
    return max(compute_us, 0.0 if in_cache else least_bytes / cluster.gpu.bytes_per_us())
