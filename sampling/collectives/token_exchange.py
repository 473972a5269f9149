"""TokenExchange: a mixture's tokens sent to their experts, or back, once per node and forwarded there, as DeepEP does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from sampling.call import Phase
from sampling.collectives.kinds import Collective
from sampling.hardware.cluster import Cluster


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenExchange(Collective):
    """Tokens to the ranks of their experts: one copy per node through the network card, from there to each rank over the node's
    links (DeepEP, github.com/deepseek-ai/DeepEP, README: normal kernels with NVLink and RDMA forwarding; NVIDIA's Hybrid-EP alike).

    `size_bytes` are the copies that a rank sends to other ranks inside nodes, `away_bytes` those that it sends to other nodes.
    It is not registered, so no sampler times it: that takes the library of the framework.
    """

    NAME: ClassVar[str] = "token_exchange"
    COLUMNS: ClassVar[tuple[str, ...]] = ()
    EXTRA_BUFFER: ClassVar[Literal["", "shard", "other"]] = "other"

    away_bytes: int

    def bytes_on_wire(self) -> float:
        return float(self.size_bytes + self.away_bytes)

    def steps(self) -> float:
        return 1.0 if self.ranks <= self.ranks_per_node else 2.0

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        inside = cluster.link_in_node(min(self.ranks, self.ranks_per_node))
        inside_us = self.size_bytes / inside.bytes_per_us()
        away_us = self.away_bytes / cluster.inter_node.bytes_per_us()
        link = cluster.link(self.ranks, self.ranks_per_node)
        return {"latency": self.steps() * link.latency_us, "wire": max(inside_us, away_us)}
