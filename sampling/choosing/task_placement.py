"""Placement of a task's calls: on which nodes and groups of the cluster, and which calls it cannot run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sampling.call import Call, Request
from sampling.cells.overlap import Overlap
from sampling.choosing.tasks import SamplingTask
from sampling.collectives.kinds import Collective
from sampling.collectives.topology import Placement, covers, groups_of, placement_of
from sampling.hardware.cluster import hardware_facts
from sampling.hardware.machine import Machine
from sampling.units import GIB

BUFFER_MEMORY_SHARE = 0.4
"""Share of a rank's memory that the buffers of a collective may take; NCCL's own and those of other groups need some too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedTasks:
    """Tasks by the nodes and groups they run on, and how many calls this machine cannot run."""

    tasks: list[SamplingTask]
    misplaced: int
    """Calls whose groups the machine cannot form."""
    too_large: int
    """Collectives whose buffers do not fit in the memory."""


def place_tasks(machine: Machine, tasks: Iterable[SamplingTask], memory_bytes: Callable[[int], float]) -> PlacedTasks:
    """Split every task by the nodes and groups that its calls run on, without the calls that the machine cannot run.

    `memory_bytes` gives the memory of a rank by how many ranks share a node.
    """
    placed: list[SamplingTask] = []
    misplaced = too_large = 0
    for task in tasks:
        largest_buffer = BUFFER_MEMORY_SHARE * memory_bytes(task.busy_ranks)
        by_place: dict[tuple[int, Placement | None], list[Request]] = {}
        for request in task.requests:
            place = _place(request.call, task, machine)
            if place is None:
                misplaced += 1
            elif request.call.buffer_bytes() > largest_buffer:
                too_large += 1
            else:
                by_place.setdefault(place, []).append(request)
        placed += [
            replace(task, requests=requests, nodes=nodes, group=group) for (nodes, group), requests in by_place.items()
        ]
    return PlacedTasks(tasks=placed, misplaced=misplaced, too_large=too_large)


def _place(call: Call, task: SamplingTask, machine: Machine) -> tuple[int, Placement | None] | None:
    """The nodes of the call's job, and the groups of its cells where they are not all its ranks; None if it cannot run."""
    placement = placement_of(call)
    nodes = max(task.nodes, placement.nodes)
    if nodes > 1:
        nodes = machine.nodes
    ranks = Machine(nodes=nodes, gpus_per_node=task.busy_ranks)
    groups = len(groups_of(placement, ranks))
    if isinstance(call, Collective | Overlap):
        needed = call.groups if isinstance(call, Collective) else 1
        return (nodes, None) if groups >= needed else None
    if not covers(placement, ranks):
        return None
    return nodes, None if call.group_size in (1, ranks.ranks) else placement


def memory_of_a_rank(hardware: str, ranks: int) -> float:
    """Bytes: a GPU's own memory, or an even share of this machine's."""
    facts = hardware_facts(hardware)
    if facts.kind == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / ranks
    return float(facts.memory_gib) * GIB
