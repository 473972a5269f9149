"""The group of ranks that shares a cell, and the collectives on either side of its products."""

from __future__ import annotations

from dataclasses import dataclass

from sampling.call import Counted
from sampling.collectives.kinds import AllGather, AllReduce, ReduceScatter


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
