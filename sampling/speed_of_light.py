"""The roofline bound of a call, below which no device of these peaks can time it (Williams et al., CACM 52(4), 2009)."""

from dataclasses import replace

from sampling.arithmetic.operator import Operator
from sampling.call import Call, Phase
from sampling.collectives.kinds import Collective
from sampling.hardware.cluster import Cluster
from sampling.units import MIB

WIRE_SLACK = 2.0
"""Factor by which a collective may be faster than a ring on the stated link: with a switch that reduces and copies (NVLink
SHARP) each byte passes a rank's link once, in a ring's all-reduce twice."""


def physical_bound_us(call: Call, phase: Phase, cluster: Cluster) -> float:
    """The least time (µs) of a valid measurement: the slowest resource at its peak, parts one after the other.

    It omits memory traffic that a cache can hold, communication inside a cell, which may overlap, and latencies, which are
    nominal (small messages do not take a ring; the cost of waking threads varies).
    """
    return _bound_us(call, phase, replace(cluster, gpu=cluster.gpu.at_its_fastest()))


def _bound_us(call: Call, phase: Phase, cluster: Cluster) -> float:
    parts = call.parts(phase)
    if parts:
        operators = [part for part in parts if isinstance(part.call, Operator)]
        return sum(part.count * _bound_us(part.call, part.phase, cluster) for part in operators)
    terms = call.terms(phase, cluster)
    if isinstance(call, Collective):
        # the ranks of a node may use the links of all of them to other nodes
        links = 1 if call.ranks <= call.ranks_per_node else call.ranks_per_node
        return terms["wire"] / (WIRE_SLACK * links)
    compute_us = max((value for name, value in terms.items() if name.endswith("_compute")), default=0.0)
    least_bytes = call.least_bytes(phase) if isinstance(call, Operator) else 0.0
    in_cache = least_bytes < cluster.gpu.cache_mib * MIB
    return max(compute_us, 0.0 if in_cache else least_bytes / cluster.gpu.bytes_per_us())
