"""Which ranks make up a group: placements on a cluster of nodes, and the groups that can run side by side.

Ranks count through the nodes: rank = node · gpus_per_node + place on the node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from sampling.call import Call
from sampling.hardware.machine import Machine


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """A group of `ranks`, `ranks_per_node` of them on each node; its last node takes what is left."""

    ranks: int
    ranks_per_node: int

    @property
    def on_a_node(self) -> int:
        return min(self.ranks, self.ranks_per_node)

    @property
    def nodes(self) -> int:
        return math.ceil(self.ranks / self.on_a_node)


def placement_of(call: Call) -> Placement:
    """Where the ranks of a call stand: collectives say how many share a node, cells over how many nodes they are spread."""
    fields = call.fields()
    spread = -(-call.group_size // int(fields.get("group_nodes", 1)))
    return Placement(ranks=call.group_size, ranks_per_node=int(fields.get("ranks_per_node", spread)))


def groups_of(placement: Placement, machine: Machine) -> list[tuple[int, ...]]:
    """All groups of the placement that run side by side, those that share nodes one after the other; none if it does not fit.

    On one node they are neighbours, as tensor parallelism places them. Over nodes every group takes each k-th GPU of a
    node, where k of them share it: data and expert parallelism with k-way tensor parallelism inside, pipelines at k = all.
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


def covers(placement: Placement, machine: Machine) -> bool:
    """Whether its groups leave no rank out, as those of a training run's cells do."""
    return sum(len(group) for group in groups_of(placement, machine)) == machine.ranks


def placements(machine: Machine) -> Iterator[Placement]:
    """Every distinct way to place a group: powers of two, and the whole, of a node's GPUs times as many nodes."""
    for nodes in _sizes(machine.nodes):
        for on_a_node in _sizes(machine.gpus_per_node):
            if nodes * on_a_node > 1:
                yield Placement(ranks=nodes * on_a_node, ranks_per_node=on_a_node)


def _sizes(most: int) -> list[int]:
    return sorted({2**power for power in range(most.bit_length())} | {most})
