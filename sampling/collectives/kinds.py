"""Collectives and point-to-point messages, by bytes, ranks, and how many of the ranks share a node.

`size_bytes` is the buffer of an all-reduce, the whole gathered buffer of an all-gather or reduce-scatter, one rank's
buffer of an all-to-all, and the message of a send-recv. Wire factors are those of nccl-tests (PERFORMANCE.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from sampling.arithmetic.arrays import log2, smaller
from sampling.call import Call, Counted, Phase, register
from sampling.hardware.cluster import Cluster

FILLING_US = (3, 30)
"""Time on the wire during which the chunks of a message do not fill it yet, so that its first bytes cost more than its last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective(Call):
    """A collective of `groups` groups of `ranks` ranks, by the bytes of its buffer; the elements sent are fp32."""

    PHASES: ClassVar[tuple[Phase, ...]] = ("forward",)
    COLUMNS: ClassVar[tuple[str, ...]] = ("size_bytes",)
    EXTRA_BUFFER: ClassVar[Literal["", "shard", "other"]] = ""
    """Buffer that it needs besides the whole one: one rank's shard, or another whole one."""

    PASSES: ClassVar[int] = 1
    """Times that the ring is gone round."""

    size_bytes: int
    ranks: int
    ranks_per_node: int
    groups: int = 1
    """Number of groups of the cluster that run it at once, those that share nodes first; the slowest group's time counts."""

    @property
    def group_size(self) -> int:
        return self.ranks

    def wire_factor(self) -> float:
        """Bytes that the busiest rank puts on its link, as a share of `size_bytes`."""
        return self.PASSES * (self.ranks - 1) / self.ranks

    def steps(self) -> float:
        """Message latencies in sequence in the ring algorithm."""
        return self.PASSES * (self.ranks - 1)

    def bytes_on_wire(self) -> float:
        return self.size_bytes * self.wire_factor()

    def buffer_bytes(self) -> float:
        return self.size_bytes * {"": 1.0, "shard": 1 + 1 / self.ranks, "other": 2.0}[self.EXTRA_BUFFER]

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        link = cluster.link(self.ranks, self.ranks_per_node)
        wire_us = self.bytes_on_wire() / link.bytes_per_us()
        terms = {"latency": self.steps() * link.latency_us, "wire": wire_us}
        terms |= {f"wire_until_{filled_us}us": smaller(wire_us, float(filled_us)) for filled_us in FILLING_US}
        if self.groups > 1:
            # the wait for the other groups if all of them shared one link; the fit finds the share that do
            share_nodes = min(self.groups, max(1, cluster.gpus_per_node // min(self.ranks, self.ranks_per_node)))
            terms["wire_of_others"] = (share_nodes - 1) * wire_us
        return terms

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return {
            "log2_size_bytes": log2(self.size_bytes + 1),
            "log2_ranks": math.log2(self.ranks),
            "log2_nodes": math.log2(max(1.0, self.ranks / self.ranks_per_node)),
        }


@register
class AllReduce(Collective):
    """Sum over ranks of buffers of `size_bytes`, left on every rank."""

    __slots__ = ()

    NAME: ClassVar[str] = "all_reduce"
    PASSES: ClassVar[int] = 2


@register
class AllGather(Collective):
    """Each rank's shard, gathered to `size_bytes` on every rank."""

    __slots__ = ()

    NAME: ClassVar[str] = "all_gather"
    EXTRA_BUFFER: ClassVar[Literal["", "shard", "other"]] = "shard"


@register
class ReduceScatter(Collective):
    """Sum over ranks of buffers of `size_bytes`; each rank keeps its shard."""

    __slots__ = ()

    NAME: ClassVar[str] = "reduce_scatter"
    EXTRA_BUFFER: ClassVar[Literal["", "shard", "other"]] = "shard"


@register
class AllToAll(Collective):
    """Each rank sends an even share of its `size_bytes` to every other."""

    __slots__ = ()

    NAME: ClassVar[str] = "all_to_all"
    EXTRA_BUFFER: ClassVar[Literal["", "shard", "other"]] = "other"


@register
class SendRecv(Collective):
    """A message to the next rank of a pair: half of a there-and-back exchange."""

    __slots__ = ()

    NAME: ClassVar[str] = "send_recv"
    DONE_PER_RUN: ClassVar[int] = 2

    def wire_factor(self) -> float:
        return 1.0

    def steps(self) -> float:
        return 1.0


KINDS: tuple[type[Collective], ...] = (AllReduce, AllGather, ReduceScatter, AllToAll, SendRecv)
"""All kinds."""


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
    library: str = "deepep"
    """deepep or hybridep."""

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


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks that share a cell, spread evenly over nodes."""

    ranks: int
    nodes: int

    @property
    def ranks_per_node(self) -> int:
        return max(1, self.ranks // self.nodes)


def summed_over_group(size_bytes: int, group: Group, sp: bool) -> tuple[Counted, ...]:
    """The collective after a row-parallel product: an all-reduce, or a reduce-scatter with sequence parallelism (`sp`)."""
    kind = ReduceScatter if sp else AllReduce
    call = kind(size_bytes=size_bytes, ranks=group.ranks, ranks_per_node=group.ranks_per_node)
    return (Counted(call=call, phase="forward"),)


def entering_group(size_bytes: int, group: Group, sp: bool) -> tuple[Counted, ...]:
    """The collective before a column-parallel product: none, or an all-gather with sequence parallelism (`sp`)."""
    if not sp:
        return ()
    call = AllGather(size_bytes=size_bytes, ranks=group.ranks, ranks_per_node=group.ranks_per_node)
    return (Counted(call=call, phase="forward"),)


@register
class CustomAllReduce(AllReduce):
    """Sum over ranks of one node that read each other's memory, as vLLM's kernel does it (csrc/custom_all_reduce.cuh), one after the
    other in a CUDA graph as in an engine's step."""

    __slots__ = ()

    NAME: ClassVar[str] = "custom_all_reduce"
    HEADING: ClassVar[str] = "all_reduce"
    DONE_PER_RUN: ClassVar[int] = 16

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        """Those of an all-reduce, but that all ranks read at once: it starts once, however many there are."""
        of_ring = AllReduce.terms(self, phase, cluster)
        return {**of_ring, "latency": cluster.link(self.ranks, self.ranks_per_node).latency_us}
