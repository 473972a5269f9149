"""Placements of groups of ranks on a cluster of nodes, and the groups that can run side by side.

Ranks are numbered node by node: rank = node · gpus_per_node + place on the node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from sampling.call import Call
from sampling.hardware.cluster import Machine


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupPlacement:
    """A group of `ranks` with `ranks_per_node` of them on each node; the last node has the remainder."""

    ranks: int
    ranks_per_node: int

    @property
    def on_a_node(self) -> int:
        return min(self.ranks, self.ranks_per_node)

    @property
    def nodes(self) -> int:
        return math.ceil(self.ranks / self.on_a_node)


def placement_of(call: Call) -> GroupPlacement:
    """The placement of a call's ranks: collectives state the ranks per node, cells the number of nodes."""
    fields = call.fields()
    spread = -(-call.group_size // int(fields.get("group_nodes", 1)))
    return GroupPlacement(ranks=call.group_size, ranks_per_node=int(fields.get("ranks_per_node", spread)))


def groups_of(placement: GroupPlacement, machine: Machine) -> list[tuple[int, ...]]:
    """All groups of the placement that run side by side, ordered by the nodes they use; none if the placement does not fit.

    On one node a group's ranks are neighbours, as in tensor parallelism. Across nodes a group takes every k-th GPU of a node
    that k groups share, as in data and expert parallelism around k-way tensor parallelism; in a pipeline k is the whole node.
    """
    on_a_node, nodes = placement.on_a_node, placement.nodes
    if on_a_node > machine.gpus_per_node or nodes > machine.nodes:
        return []
    share_a_node = machine.gpus_per_node // on_a_node
    step, stride = (on_a_node, 1) if nodes == 1 else (1, share_a_node)
    return [
        tuple(
            (first + node) * machine.gpus_per_node + offset * step + place * stride
            for node in range(nodes)
            for place in range(on_a_node)
        )[: placement.ranks]
        for first in range(0, machine.nodes - nodes + 1, nodes)
        for offset in range(share_a_node)
    ]


def covers(placement: GroupPlacement, machine: Machine) -> bool:
    """Whether every rank is in one of its groups, as in a training run."""
    return sum(len(group) for group in groups_of(placement, machine)) == machine.ranks


def placements(machine: Machine) -> Iterator[GroupPlacement]:
    """Every distinct placement: powers of two of a node's GPUs, or all of them, on powers of two of the nodes, or all of them."""
    for nodes in _sizes(machine.nodes):
        for on_a_node in _sizes(machine.gpus_per_node):
            if nodes * on_a_node > 1:
                yield GroupPlacement(ranks=nodes * on_a_node, ranks_per_node=on_a_node)


def _sizes(most: int) -> list[int]:
    return sorted({2**power for power in range(most.bit_length())} | {most})
