"""CustomAllReduce: the all-reduce of small buffers that serving engines bring along, in one kernel over a node's links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.call import Phase, register
from sampling.collectives.kinds import AllReduce
from sampling.hardware.cluster import Cluster


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class CustomAllReduce(AllReduce):
    """Sum over ranks of one node that read each other's memory, as vLLM's kernel does it (csrc/custom_all_reduce.cuh), one after the
    other in a CUDA graph as in an engine's step."""

    NAME: ClassVar[str] = "custom_all_reduce"
    HEADING: ClassVar[str] = "all_reduce"
    DONE_PER_RUN: ClassVar[int] = 16

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        """Those of an all-reduce, but that all ranks read at once: it starts once, however many there are."""
        of_ring = AllReduce.terms(self, phase, cluster)
        return {**of_ring, "latency": cluster.link(self.ranks, self.ranks_per_node).latency_us}
