"""What a session times on the ranks at hand, in order of importance, and what of it this cluster cannot run."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sampling.call import Call, Request
from sampling.cells.overlap import Overlap
from sampling.collectives.kinds import AllGather, AllReduce, AllToAll, Collective, ReduceScatter, SendRecv
from sampling.collectives.topology import Placement, covers, groups_of, placement_of, placements
from sampling.hardware.cluster import hardware_facts
from sampling.hardware.machine import Machine
from sampling.session.session import Wanted

MEMORY_SHARE = 0.4
"""Of a rank's memory, what the buffers of a collective may take: beside them are NCCL's own and those of other groups."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveGrid:
    """The `collectives` of configs/sampling/*.yml: `sizes` messages from the least to the greatest, evenly on a log scale."""

    sizes: int


def collective_grid(machine: Machine, message_bytes: tuple[int, int], grid: CollectiveGrid) -> Iterator[Call]:
    """Every collective, size and placement that the machine offers, one group alone and all groups at once.

    Any part from the start on spans all sizes, since a budget may end it anywhere.
    """
    for size_bytes in _spread(_sizes(message_bytes, grid.sizes)):
        for placement in placements(machine):
            kinds = (AllReduce, AllGather, ReduceScatter, AllToAll, *((SendRecv,) if placement.ranks == 2 else ()))
            for groups in sorted({1, len(groups_of(placement, machine))}):
                for kind in kinds:
                    yield kind(
                        size_bytes=size_bytes,
                        ranks=placement.ranks,
                        ranks_per_node=placement.ranks_per_node,
                        groups=groups,
                    )


def _sizes(box: tuple[int, int], count: int) -> list[int]:
    low, high = box
    return sorted({round(low * math.exp(math.log(high / low) * step / max(1, count - 1))) for step in range(count)})


def _spread(sizes: Sequence[int]) -> list[int]:
    """The ends first, then the middle of what lies between, and so on."""
    gaps, order = [(0, len(sizes) - 1)], list(dict.fromkeys((sizes[-1], sizes[0])))
    while gaps:
        low, high = gaps.pop(0)
        if high - low > 1:
            middle = (low + high) // 2
            order.append(sizes[middle])
            gaps += [(low, middle), (middle, high)]
    return order


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The jobs, and how many calls were left out: their ranks are not there, or their buffers are larger than memory."""

    wanted: list[Wanted]
    misplaced: int
    too_large: int


def plan_for(machine: Machine, wanted: Iterable[Wanted], memory_bytes: Callable[[int], float]) -> Plan:
    """Split every entry by the nodes and groups it runs on, less what the machine cannot run.

    `memory_bytes` is a rank's memory by how many ranks share a node.
    """
    jobs: list[Wanted] = []
    misplaced = too_large = 0
    for entry in wanted:
        by_place: dict[tuple[int, Placement | None], list[Request]] = {}
        for request in entry.requests:
            place = _place(request.call, entry, machine)
            if place is None:
                misplaced += 1
            elif request.call.buffer_bytes() > MEMORY_SHARE * memory_bytes(entry.busy_ranks):
                too_large += 1
            else:
                by_place.setdefault(place, []).append(request)
        jobs += [
            replace(entry, requests=requests, nodes=nodes, group=group) for (nodes, group), requests in by_place.items()
        ]
    return Plan(wanted=jobs, misplaced=misplaced, too_large=too_large)


def _place(call: Call, entry: Wanted, machine: Machine) -> tuple[int, Placement | None] | None:
    """The nodes of the call's job, and the groups of its cells where they are not all ranks of it; None if it cannot run."""
    placement = placement_of(call)
    nodes = max(entry.nodes, placement.nodes)
    if nodes > 1:
        nodes = machine.nodes
    ranks = Machine(nodes=nodes, gpus_per_node=entry.busy_ranks)
    groups = len(groups_of(placement, ranks))
    if isinstance(call, Collective | Overlap):
        wanted = call.groups if isinstance(call, Collective) else 1
        return (nodes, None) if groups >= wanted else None
    if not covers(placement, ranks):
        return None
    return nodes, None if call.group_size in (1, ranks.ranks) else placement


def memory_of_a_rank(hardware: str, ranks: int) -> float:
    """Bytes: a GPU's own memory, or an even share of this machine's."""
    facts = hardware_facts(hardware)
    if facts.kind == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / ranks
    return float(facts.memory_gib) * 2**30
