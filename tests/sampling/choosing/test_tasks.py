"""What a session times on a cluster, and what it leaves out."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sampling.call import Call, Request
from sampling.cells.data_parallel import ShardedAdamW
from sampling.cells.head import OutputHead
from sampling.cells.overlap import Overlap
from sampling.choosing.tasks import (
    VISITS_OF_NAMED,
    PlacedTasks,
    SamplingTask,
    collective_sweep,
    place_tasks,
    requests_of_parts,
    tasks_of_runs,
)
from sampling.collectives.kinds import AllReduce, AllToAll, SendRecv
from sampling.collectives.topology import GroupPlacement, groups_of, placement_of
from sampling.hardware.cluster import Machine, hardware_facts
from sampling.operators.gemm import Gemm

NODES = Machine(nodes=2, gpus_per_node=8)
GRID = list(collective_sweep(NODES, (2**10, 2**32), 12))
GEMM = Gemm(dtype="fp32", m=8, n=8, k=8)
CELL = ShardedAdamW(dtype="fp32", parameters=64, tensors=1, dp=16, group_nodes=2)


def placed(*calls: Call, machine: Machine = NODES, memory_gib: float = 80.0) -> PlacedTasks:
    ranks = machine.gpus_per_node
    task = SamplingTask(busy_ranks=ranks, requests=[Request(call=call, phases=call.PHASES) for call in calls], visits=1)
    return place_tasks(machine, [task], lambda ranks: memory_gib * 2**30)


def test_the_grid_spans_all_sizes_and_placements_and_nothing_twice() -> None:
    assert len(set(GRID)) == len(GRID)
    assert {call.size_bytes for call in GRID} == {2**power for power in range(10, 33, 2)}
    assert {(call.ranks, call.ranks_per_node) for call in GRID} >= {(2, 2), (8, 8), (2, 1), (16, 8), (8, 4)}
    assert all(len(groups_of(placement_of(call), NODES)) >= call.groups for call in GRID)
    assert {call.groups for call in GRID if call.ranks == 2} == {1, 8}
    assert {call.ranks for call in GRID if isinstance(call, SendRecv)} == {2}


def test_any_start_of_the_grid_spans_all_sizes() -> None:
    sizes = list(dict.fromkeys(call.size_bytes for call in GRID))
    assert sorted(sizes[:2]) == [2**10, 2**32]
    assert 2**18 < sizes[2] < 2**24


def test_calls_are_put_on_the_nodes_and_groups_that_they_need() -> None:
    pair = AllReduce(size_bytes=64, ranks=2, ranks_per_node=2)
    spread = replace(pair, ranks_per_node=1)
    half = replace(CELL, dp=4, group_nodes=1)
    strided = replace(CELL, dp=4)
    jobs = placed(GEMM, pair, spread, half, strided, CELL).tasks
    assert [(job.nodes, job.group, [request.call for request in job.requests]) for job in jobs] == [
        (1, None, [GEMM, pair]),
        (2, None, [spread, CELL]),
        (1, GroupPlacement(ranks=4, ranks_per_node=4), [half]),
        (2, GroupPlacement(ranks=4, ranks_per_node=2), [strided]),
    ]


@pytest.mark.parametrize(
    "call",
    [
        AllReduce(size_bytes=64, ranks=16, ranks_per_node=16),
        AllReduce(size_bytes=64, ranks=8, ranks_per_node=8, groups=3),
        replace(CELL, dp=3, group_nodes=1),  # its groups would leave two GPUs out
        replace(CELL, dp=32),
    ],
)
def test_groups_that_the_cluster_cannot_form_are_left_out_and_counted(call: Call) -> None:
    found = placed(call, GEMM)
    assert found.misplaced == 1
    assert [request.call for job in found.tasks for request in job.requests] == [GEMM]


@pytest.mark.parametrize(
    ("call", "ranks", "fits"),
    [
        (GEMM, 1, True),
        (AllReduce(size_bytes=64, ranks=2, ranks_per_node=2), 2, True),
        (AllReduce(size_bytes=64, ranks=2, ranks_per_node=2), 4, True),
        (AllReduce(size_bytes=64, ranks=2, ranks_per_node=1), 2, False),
        (replace(CELL, dp=2, group_nodes=1), 2, True),
        (replace(CELL, dp=2, group_nodes=2), 2, False),
    ],
)
def test_calls_that_span_nodes_cannot_be_timed_on_one(call: Call, ranks: int, fits: bool) -> None:
    found = placed(call, machine=Machine(nodes=1, gpus_per_node=ranks))
    assert (len(found.tasks), found.misplaced) == ((1, 0) if fits else (0, 1))


def test_buffers_larger_than_their_share_of_memory_are_left_out_and_counted() -> None:
    large = AllToAll(size_bytes=2**32, ranks=8, ranks_per_node=8)
    beside = Overlap(dtype="bf16", m=1, n=1, k=1, collective="all_to_all", size_bytes=2**32, ranks=8, ranks_per_node=8)
    assert large.buffer_bytes() == beside.buffer_bytes() == 2 * 2**32
    assert placed(large, beside, GEMM, memory_gib=16).too_large == 2
    assert placed(large, beside, GEMM, memory_gib=24).too_large == 0


def test_the_parts_of_what_is_timed_whole_are_timed_once_each() -> None:
    head = OutputHead(dtype="fp32", batch=2, seq_len=128, hidden=64, vocab=512, norm="rms", tp=1, sp=False)
    parts = requests_of_parts(
        [Request(call=head, phases=("forward", "backward")), Request(call=GEMM, phases=("forward",))]
    )
    assert {request.call.NAME for request in parts} == {"gemm", "rms_norm", "cross_entropy"}
    assert all({"forward", "backward"} >= set(request.phases) for request in parts)
    assert len({request.call for request in parts}) == len(parts)
    assert requests_of_parts([Request(call=GEMM, phases=GEMM.PHASES)]) == []


def test_visits_beyond_the_usual_ones_come_after_the_parts(tmp_path: Path) -> None:
    call = {
        "ranks_per_node": 1,
        "call": "gemm",
        "fields": {"dtype": "fp32", "m": 8, "n": 8, "k": 8},
        "phases": ["forward"],
    }
    calls = tmp_path / "calls.json"
    calls.write_text(json.dumps({"version": 2, "hardware": hardware_facts("cpu").name, "calls": [call]}))
    assert [task.visits for task in tasks_of_runs(calls, "cpu", 1)] == [VISITS_OF_NAMED]
    assert [task.visits for task in tasks_of_runs(calls, "cpu", 1, 9)] == [VISITS_OF_NAMED, 9]
