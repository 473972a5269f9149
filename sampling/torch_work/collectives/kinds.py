"""Collectives and point-to-point messages by torch.distributed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.distributed as dist

from sampling.call import Phase
from sampling.collectives.kinds import AllGather, AllReduce, AllToAll, Collective, ReduceScatter, SendRecv
from sampling.torch_work.build import builds
from sampling.torch_work.collectives.process_groups import present
from sampling.torch_work.workload_protocols import Workload


@builds(Collective)
def collective(call: Collective, device: torch.device) -> Workload:
    group = present().own(call)
    return Outside() if group is None else CollectiveWorkload(call, device, group)


class CollectiveWorkload:
    """One collective on a process group, again and again on the same buffers."""

    def __init__(self, call: Collective, device: torch.device, group: Any) -> None:
        self._run = FUNCTIONS[type(call)]
        self._group = group
        self._buffers = Buffers(device, call.size_bytes, call.ranks, call.EXTRA_BUFFER)

    def prepare(self, phase: Phase) -> None:
        # keeps repeated sums finite
        self._buffers.whole.clamp_(-1.0, 1.0)

    def run(self, phase: Phase) -> None:
        self._run(self._buffers, self._group)


class Outside:
    """The workload of a rank whose neighbours run a collective without it."""

    def prepare(self, phase: Phase) -> None:
        """Nothing to do."""

    def run(self, phase: Phase) -> None:
        """Nothing to do: the slowest rank's time counts, and this rank's is the least."""


class Buffers:
    """fp32 buffers of a collective: a whole one and, where it needs one, another of its size or one rank's shard."""

    def __init__(
        self, device: torch.device, size_bytes: int, ranks: int, beside: Literal["", "shard", "other"]
    ) -> None:
        shard = max(1, math.ceil(size_bytes / 4 / ranks))
        self.whole = torch.randn(shard * ranks, device=device)
        self.other = torch.empty_like(self.whole) if beside == "other" else self.whole
        self.shard = torch.randn(shard, device=device) if beside == "shard" else self.whole


def _all_reduce(buffers: Buffers, group: Any) -> None:
    dist.all_reduce(buffers.whole, group=group)


def _all_gather(buffers: Buffers, group: Any) -> None:
    dist.all_gather_into_tensor(buffers.whole, buffers.shard, group=group)


def _reduce_scatter(buffers: Buffers, group: Any) -> None:
    dist.reduce_scatter_tensor(buffers.shard, buffers.whole, group=group)


def _all_to_all(buffers: Buffers, group: Any) -> None:
    dist.all_to_all_single(buffers.other, buffers.whole, group=group)


def _there_and_back(buffers: Buffers, group: Any) -> None:
    peer = 1 - dist.get_rank(group)
    if peer == 1:
        dist.send(buffers.whole, group=group, group_dst=peer)
        dist.recv(buffers.whole, group=group, group_src=peer)
    else:
        dist.recv(buffers.whole, group=group, group_src=peer)
        dist.send(buffers.whole, group=group, group_dst=peer)


FUNCTIONS: dict[type[Collective], Callable[[Buffers, Any], None]] = {
    AllReduce: _all_reduce,
    AllGather: _all_gather,
    ReduceScatter: _reduce_scatter,
    AllToAll: _all_to_all,
    SendRecv: _there_and_back,
}
"""Each does its collective on a process group that this rank is in, and waits for it."""
