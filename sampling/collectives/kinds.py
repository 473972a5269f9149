"""Collectives and point-to-point messages, by bytes, ranks, and how many of the ranks share a node.

`size_bytes` is the buffer of an all-reduce, the whole gathered buffer of an all-gather or reduce-scatter, one rank's
buffer of an all-to-all, and the message of a send-recv. Wire factors are those of nccl-tests (PERFORMANCE.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from sampling.arithmetic.arrays import least, log2
from sampling.call import Call, Phase
from sampling.catalogue import register
from sampling.hardware.cluster import Cluster

RUN: tuple[Phase, ...] = ("forward",)
FILLING_US = (3, 30)
"""Time on the wire while which a message's chunks do not yet fill it, so that its first bytes cost more than its last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective(Call):
    """Buffers are bytes: a reduction's cost here does not depend on the element type (fp32 elements are sent)."""

    PHASES: ClassVar[tuple[Phase, ...]] = RUN
    COLUMNS: ClassVar[tuple[str, ...]] = ("size_bytes",)
    BESIDE: ClassVar[Literal["", "shard", "other"]] = ""
    """The buffer it needs beside the whole one: one rank's shard, or another whole one."""

    size_bytes: int
    ranks: int
    ranks_per_node: int
    groups: int = 1
    """How many such groups of the cluster run it at once, those that share nodes first; the time is the slowest's."""

    @property
    def group_size(self) -> int:
        return self.ranks

    def wire_factor(self) -> float:
        """Bytes that the busiest rank puts on its link, as a share of `size_bytes`."""
        return (self.ranks - 1) / self.ranks

    def steps(self) -> float:
        """Message latencies that follow one another in the ring algorithm."""
        return self.ranks - 1

    def bytes_on_wire(self) -> float:
        return self.size_bytes * self.wire_factor()

    def buffer_bytes(self) -> float:
        return self.size_bytes * {"": 1.0, "shard": 1 + 1 / self.ranks, "other": 2.0}[self.BESIDE]

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        link = cluster.link(self.ranks, self.ranks_per_node)
        wire_us = self.bytes_on_wire() / link.bytes_per_us()
        terms = {"latency": self.steps() * link.latency_us, "wire": wire_us}
        terms |= {f"wire_until_{filled_us}us": least(wire_us, float(filled_us)) for filled_us in FILLING_US}
        if self.groups > 1:
            # what waiting for the other groups would add if all of them went over one link: the fit finds how much does
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
@dataclass(frozen=True, kw_only=True, slots=True)
class AllReduce(Collective):
    """Sum of `size_bytes` on every rank, left on every rank."""

    NAME: ClassVar[str] = "all_reduce"

    def wire_factor(self) -> float:
        return 2 * (self.ranks - 1) / self.ranks

    def steps(self) -> float:
        return 2 * (self.ranks - 1)


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class AllGather(Collective):
    """Each rank's shard, gathered to `size_bytes` on every rank."""

    NAME: ClassVar[str] = "all_gather"
    BESIDE: ClassVar[Literal["", "shard", "other"]] = "shard"


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class ReduceScatter(Collective):
    """Sum of `size_bytes` on every rank, each left with its shard."""

    NAME: ClassVar[str] = "reduce_scatter"
    BESIDE: ClassVar[Literal["", "shard", "other"]] = "shard"


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class AllToAll(Collective):
    """Each rank sends an even share of its `size_bytes` to every other."""

    NAME: ClassVar[str] = "all_to_all"
    BESIDE: ClassVar[Literal["", "shard", "other"]] = "other"


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class SendRecv(Collective):
    """A message to the next rank of a pair: half of a there-and-back exchange."""

    NAME: ClassVar[str] = "send_recv"
    DONE_PER_RUN: ClassVar[int] = 2

    def wire_factor(self) -> float:
        return 1.0

    def steps(self) -> float:
        return 1.0
