"""The tasks of a session, in order of importance: calls that named runs need, then calls that fill the space of shapes."""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sampling.call import Call, Phase, Request
from sampling.cells.overlap import Overlap
from sampling.choosing.calls_file import read_calls_file
from sampling.choosing.ranges import ShapeRanges
from sampling.choosing.shapes import DrawnModel, calls_of, draw_models
from sampling.collectives.kinds import AllGather, AllReduce, AllToAll, Collective, ReduceScatter, SendRecv
from sampling.collectives.topology import GroupPlacement, covers, groups_of, placement_of, placements
from sampling.errors import ConfigError
from sampling.hardware.cluster import Machine, hardware_facts
from sampling.store.sample import Sample
from sampling.units import GIB

# Which collectives to time: every kind, message size and group that the cluster offers.


def collective_sweep(machine: Machine, message_bytes: Sequence[int], sizes: int) -> Iterator[Call]:
    """Every collective at `sizes` message sizes over every placement, one group alone and all groups at once.

    The order covers the range of sizes early, since a budget may end it anywhere.
    """
    for size_bytes in _ends_first(_message_sizes(message_bytes, sizes)):
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


def _message_sizes(low_high: Sequence[int], count: int) -> list[int]:
    low, high = low_high
    return sorted({round(low * math.exp(math.log(high / low) * step / max(1, count - 1))) for step in range(count)})


def _ends_first(sizes: Sequence[int]) -> list[int]:
    """The largest and the smallest first, then the middle of each gap between those chosen so far."""
    gaps, order = [(0, len(sizes) - 1)], list(dict.fromkeys((sizes[-1], sizes[0])))
    while gaps:
        low, high = gaps.pop(0)
        if high - low > 1:
            middle = (low + high) // 2
            order.append(sizes[middle])
            gaps += [(low, middle), (middle, high)]
    return order


VISITS_OF_NAMED = 3
"""Moments at which a call that a named run needs is timed: a shared machine drifts by 5–15 % over minutes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingTask:
    """Requests to time with `busy_ranks` ranks on each of `nodes`, each at `visits` moments of the session."""

    busy_ranks: int
    requests: Sequence[Request]
    visits: int
    nodes: int = 1
    group: GroupPlacement | None = None
    """Placement of the groups that cells run on, where it is not all ranks together."""
    fills_space: bool = False
    """Whether the task takes an even share of the budget that the others leave."""


def tasks_of_runs(
    calls: Path, hardware: str, gpus_per_node: int, visits: int = VISITS_OF_NAMED
) -> Iterator[SamplingTask]:
    """The calls of a calls file, then their parts, one task each per number of ranks per node; after the parts, the visits of the calls
    beyond VISITS_OF_NAMED, which so lie further apart.

    A step's ledger names the parts of what was timed in one piece, so each is timed once; the step's time does not rest on them.
    ConfigError where a node here has fewer ranks.
    """
    for ranks, requests in sorted(read_calls_file(calls, hardware_facts(hardware).name).items()):
        if ranks > gpus_per_node:
            raise ConfigError(
                f"{calls}: needs {ranks} ranks on one node, and this machine can run {gpus_per_node}; sample on a machine as "
                "large as the runs' nodes, or write the calls of runs with fewer cluster.gpus_per_node"
            )
        yield SamplingTask(busy_ranks=ranks, requests=requests, visits=min(visits, VISITS_OF_NAMED))
        if parts := requests_of_parts(requests):
            yield SamplingTask(busy_ranks=ranks, requests=parts, visits=1)
        if visits > VISITS_OF_NAMED:
            yield SamplingTask(busy_ranks=ranks, requests=requests, visits=visits)


def requests_of_parts(requests: Iterable[Request]) -> list[Request]:
    """The atomic calls that the requests are made of, each once, without the requests themselves."""
    wanted: dict[Call, dict[Phase, None]] = {}

    def add(call: Call, phase: Phase) -> None:
        for part in call.parts(phase):
            if part.call.parts(part.phase):
                add(part.call, part.phase)
            elif not part.call.OVERHEAD:
                wanted.setdefault(part.call, {})[part.phase] = None

    named = list(requests)
    for request in named:
        for phase in request.phases:
            add(request.call, phase)
    for request in named:
        wanted.pop(request.call, None)
    return [Request(call=call, phases=tuple(phases)) for call, phases in wanted.items()]


def space_filling_tasks(
    ranges: ShapeRanges, models: int, machine: Machine, rank_counts: Sequence[int]
) -> Iterator[SamplingTask]:
    """The operators and cells of `models` drawn models, at each number of busy ranks per node; then the collectives."""
    drawn = draw_models(ranges, models)
    for ranks in rank_counts:
        requests = list(requests_of_models(drawn, ranks))
        yield SamplingTask(busy_ranks=ranks, requests=requests, visits=1, fills_space=True)
    machine = replace(machine, gpus_per_node=rank_counts[-1])
    if ranges.collectives and machine.ranks > 1:
        calls = collective_sweep(machine, ranges.message_bytes, ranges.collectives.sizes)
        yield SamplingTask(
            busy_ranks=machine.gpus_per_node,
            requests=[Request(call=call, phases=call.PHASES) for call in calls],
            visits=1,
            nodes=machine.nodes,
            fills_space=True,
        )


def requests_of_models(models: Iterable[DrawnModel], ranks: int) -> Iterator[Request]:
    """Every cell of every model, and the operators they are made of for every second model, since cells carry a step."""
    for index, model in enumerate(models):
        for call in calls_of(model, ranks, with_operators=index % 2 == 0):
            yield Request(call=call, phases=phases_worth_timing(call))


def phases_worth_timing(call: Call) -> tuple[Phase, ...]:
    """All phases, except the two halves of a backward that spans ranks or is compiled.

    Schedules that split the backward run on whole layers, and a compiled backward is a single piece.
    """
    if call.group_size == 1 and not call.fields().get("compiled"):
        return call.PHASES
    return tuple(phase for phase in call.PHASES if phase not in ("backward_input", "backward_weight"))


def missing(requests: Iterable[Request], kept: Iterable[Sample], ranks: int, visits: int) -> list[Request]:
    """The requests still to be timed until every phase has `visits` good rows taken with `ranks` busy ranks.

    All calls are timed one time before any is timed again, so that the rows of one call lie apart in time and a slow spell
    of the machine does not fall on all of them.
    """
    have = Counter(
        (sample.call, sample.phase)
        for sample in kept
        # one visit times both states of a device
        if sample.busy_ranks == ranks and not sample.quarantine and sample.state == "burst"
    )
    wanted: dict[Call, dict[Phase, None]] = {}
    for request in requests:
        wanted.setdefault(request.call, {}).update(dict.fromkeys(request.phases))
    lacking = []
    for visit in range(visits):
        for call, phases in wanted.items():
            unanswered = tuple(phase for phase in phases if have[call, phase] <= visit)
            if unanswered:
                lacking.append(Request(call=call, phases=unanswered))
    return lacking


# Placement of a task's calls: on which nodes and groups of the cluster, and which calls it cannot run.

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
        by_place: dict[tuple[int, GroupPlacement | None], list[Request]] = {}
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


def _place(call: Call, task: SamplingTask, machine: Machine) -> tuple[int, GroupPlacement | None] | None:
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
