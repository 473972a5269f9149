"""Eager 1F1B against 1F1B: equally long where transfers are free, shorter where they are not, at the price of memory."""

from __future__ import annotations

import pytest

from predict.schedules import registry
from predict.schedules.engine.costs import ChunkTimes
from predict.schedules.engine.timing import Timeline, simulate

RANKS, MICROBATCHES = 4, 16


def timeline(name: str, p2p: float) -> Timeline:
    order = registry.order(name, ranks=RANKS, chunks=1, microbatches=MICROBATCHES)
    return simulate(order, ChunkTimes(forward=1.0, backward_input=1.0, backward_weight=1.0, p2p=p2p))


def test_free_transfers_leave_the_time_of_1f1b() -> None:
    assert timeline("eager-1f1b", 0.0).makespan == timeline("1f1b", 0.0).makespan == 3.0 * (MICROBATCHES + RANKS - 1)


@pytest.mark.parametrize("p2p", [0.25, 0.5, 1.0])
def test_longer_transfers_are_hidden(p2p: float) -> None:
    assert timeline("eager-1f1b", p2p).makespan < timeline("1f1b", p2p).makespan


def test_rank_0_holds_twice_as_many_activations_less_one() -> None:
    assert timeline("1f1b", 0.0).peak_chunks()[0] == RANKS
    assert timeline("eager-1f1b", 0.0).peak_chunks()[0] == 2 * RANKS - 1
