"""Collectives and point-to-point messages, by bytes, ranks, and how many of the ranks share a node.

`size_bytes` is the buffer of an all-reduce, the whole gathered buffer of an all-gather or reduce-scatter, one rank's
buffer of an all-to-all, and the message of a send-recv. Wire factors are those of nccl-tests (PERFORMANCE.md).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sampling.call import Call, Phase, register
from sampling.hardware import Cluster

if TYPE_CHECKING:
    import torch

RUN: tuple[Phase, ...] = ("forward",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective(Call):
    """Buffers are bytes: a reduction's cost here does not depend on the element type (fp32 elements are sent)."""

    PHASES: ClassVar[tuple[Phase, ...]] = RUN

    size_bytes: int
    ranks: int
    ranks_per_node: int

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

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        link = cluster.link(self.ranks, self.ranks_per_node)
        return {
            "latency": self.steps() * link.latency_us,
            "wire": self.bytes_on_wire() / link.bytes_per_us(),
        }

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return {
            "log2_size_bytes": math.log2(self.size_bytes + 1),
            "log2_ranks": math.log2(self.ranks),
            "log2_nodes": math.log2(max(1.0, self.ranks / self.ranks_per_node)),
        }

    @abstractmethod
    def run_once(self, buffers: Buffers) -> None:
        """Start the collective on the default group and wait for it."""

    def build(self, device: torch.device) -> CollectiveWorkload:
        return CollectiveWorkload(self, Buffers(device, self.size_bytes, self.ranks))


class CollectiveWorkload:
    """Runs one collective on the default process group, again and again on the same buffers."""

    def __init__(self, collective: Collective, buffers: Buffers) -> None:
        self._collective = collective
        self._buffers = buffers

    def prepare(self, phase: Phase) -> None:
        # keeps repeated sums finite
        self._buffers.whole.clamp_(-1.0, 1.0)

    def run(self, phase: Phase) -> None:
        self._collective.run_once(self._buffers)


class Buffers:
    """fp32 buffers for a collective: the whole, another of its size, and one rank's shard."""

    def __init__(self, device: torch.device, size_bytes: int, ranks: int) -> None:
        import torch

        shard = max(1, math.ceil(size_bytes / 4 / ranks))
        self.whole = torch.randn(shard * ranks, device=device)
        self.other = torch.empty_like(self.whole)
        self.shard = torch.randn(shard, device=device)


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class AllReduce(Collective):
    """Sum of `size_bytes` on every rank, left on every rank."""

    NAME: ClassVar[str] = "all_reduce"

    def wire_factor(self) -> float:
        return 2 * (self.ranks - 1) / self.ranks

    def steps(self) -> float:
        return 2 * (self.ranks - 1)

    def run_once(self, buffers: Buffers) -> None:
        import torch.distributed as dist

        dist.all_reduce(buffers.whole)


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class AllGather(Collective):
    """Each rank's shard, gathered to `size_bytes` on every rank."""

    NAME: ClassVar[str] = "all_gather"

    def run_once(self, buffers: Buffers) -> None:
        import torch.distributed as dist

        dist.all_gather_into_tensor(buffers.whole, buffers.shard)


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class ReduceScatter(Collective):
    """Sum of `size_bytes` on every rank, each left with its shard."""

    NAME: ClassVar[str] = "reduce_scatter"

    def run_once(self, buffers: Buffers) -> None:
        import torch.distributed as dist

        dist.reduce_scatter_tensor(buffers.shard, buffers.whole)


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class AllToAll(Collective):
    """Each rank sends an even share of its `size_bytes` to every other."""

    NAME: ClassVar[str] = "all_to_all"

    def run_once(self, buffers: Buffers) -> None:
        import torch.distributed as dist

        dist.all_to_all_single(buffers.other, buffers.whole)


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

    def run_once(self, buffers: Buffers) -> None:
        import torch.distributed as dist

        peer = 1 - dist.get_rank()
        if peer == 1:
            dist.send(buffers.whole, peer)
            dist.recv(buffers.whole, peer)
        else:
            dist.recv(buffers.whole, peer)
            dist.send(buffers.whole, peer)
