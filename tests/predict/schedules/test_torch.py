"""Orders against those that the installed torch builds, for more counts than the stored tables have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from predict.schedules import registry
from predict.schedules.engine.order import KINDS
from predict.schedules.torch_csv import KIND_OF

torch_schedules = pytest.importorskip("torch.distributed.pipelining.schedules")

CLASSES = {
    "looped-bfs": ("ScheduleLoopedBFS", (1, 2, 3)),
    "interleaved-1f1b": ("ScheduleInterleaved1F1B", (1, 2, 3)),
    "interleaved-zb": ("ScheduleInterleavedZeroBubble", (1, 2, 3)),
    "zbv": ("ScheduleZBVZeroBubble", (2,)),
    "dualpipev": ("ScheduleDualPipeV", (2,)),
}
Listed = list[tuple[str, int, int, bool]]


def of_torch(name: str, ranks: int, chunks: int, microbatches: int) -> list[Listed]:
    """What torch's class lists for each rank, without the processes that it wants to be built with."""
    made = object.__new__(getattr(torch_schedules, CLASSES[name][0]))
    rounds = max(1, microbatches // ranks)
    made.pp_group_size, made.n_local_stages, made._n_microbatches = ranks, chunks, microbatches
    made.num_stages = made._num_stages = ranks * chunks
    made.number_of_rounds, made.microbatches_per_round = rounds, microbatches // rounds
    placement = registry.get(name).placement(ranks, chunks)
    listed = []
    for rank in range(ranks):
        made._stages = [SimpleNamespace(stage_index=stage) for stage in placement.stages[rank]]
        listed.append([half for action in made._calculate_single_rank_operations(rank) for half in _halves(action)])
    return listed


def _halves(action: Any) -> Listed:
    if action is None:
        return []
    return [
        (KIND_OF[one.computation_type.value], one.microbatch_index, one.stage_index, bool(action.sub_actions))
        for one in action.sub_actions or [action]
    ]


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("ranks", [1, 3, 5, 8])
def test_orders_are_those_of_torch(name: str, ranks: int) -> None:
    for chunks in CLASSES[name][1]:
        for microbatches in (1, 5, 8, 12, 16, 33):
            if registry.get(name).refusal(ranks, chunks, microbatches):
                continue
            order = registry.order(name, ranks=ranks, chunks=chunks, microbatches=microbatches)
            ours = [
                [
                    (KINDS[kind], microbatch, stages[chunk], bool(paired))
                    for kind, microbatch, chunk, paired in row.tolist()
                ]
                for stages, row in zip(order.placement.stages, order.rows, strict=True)
            ]
            assert ours == of_torch(name, ranks, chunks, microbatches), (chunks, microbatches)
