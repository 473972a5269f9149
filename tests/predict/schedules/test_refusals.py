"""What the engine refuses, and that it says where and why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from predict.schedules import registry
from predict.schedules.engine.order import Action, Order, Placement, locate, loop
from predict.schedules.engine.timing import ChunkTimes, makespan, makespans, simulate
from sampling.errors import ConfigError, InfeasibleError


def test_a_deadlock_names_who_waits_for_whom() -> None:
    f0, f1, b0, b1 = (Action(kind, microbatch, 0) for kind in ("F", "BW") for microbatch in (0, 1))
    order = Order.of(((f0, b0, f1, b1), (f0, f1, b0, b1)), microbatches=2, placement=loop(2, 1))
    expected = (
        "deadlocks: rank 0 stops at BW of microbatch 0, chunk 0, which needs BW of microbatch 0, chunk 0 of rank 1; "
        "rank 1 stops at F of microbatch 1, chunk 0, which needs F of microbatch 1, chunk 0 of rank 0"
    )
    for run in (makespan, makespans, simulate):
        with pytest.raises(InfeasibleError, match=expected):
            run(order, ChunkTimes(forward=1, backward_input=1, backward_weight=1))


F0, B0, W0, BW0 = (Action(kind, 0, 0) for kind in ("F", "B", "W", "BW"))


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ((BW0,), "F of microbatch 0, chunk 0 is missing"),
        ((F0,), "the backward of microbatch 0, chunk 0 is missing"),
        ((F0, B0), "W of microbatch 0, chunk 0 is missing"),
        ((F0, W0), "B of microbatch 0, chunk 0 is missing"),
        ((F0, F0, BW0), "F of microbatch 0, chunk 0 is there 2 times"),
        ((F0, B0, BW0), "B of microbatch 0, chunk 0 is there beside the BW"),
        ((F0, B0, W0, BW0), "B of microbatch 0, chunk 0 is there beside the BW; rank 1: W of"),
        ((F0, BW0, Action("F", 1, 0)), "F of microbatch 1, chunk 0 is not of this order"),
        ((F0, BW0, Action("F", 0, -1)), "F of microbatch 0, chunk -1 is not of this order"),
        ((F0, BW0, Action("X", 0, 0)), "X of microbatch 0, chunk 0 is not of this order"),  # type: ignore[arg-type]
    ],
)
def test_an_incomplete_order_names_rank_and_action(row: tuple[Action, ...], fault: str) -> None:
    with pytest.raises(ConfigError, match=f"rank 1: {fault}") as raised:
        order = Order.of(((F0, BW0), row), microbatches=1, placement=loop(2, 1))
        makespan(order, ChunkTimes(forward=1, backward_input=1, backward_weight=1))
    assert "rank 0:" not in str(raised.value)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"placement": loop(3, 1)}, "2 ranks have actions"),
        ({"placement": Placement(stages=((0, 1), (2,)), chains=(0, 0))}, "do not match placement"),
        ({"placement": Placement(stages=((0,), (0,)), chains=(0,))}, "each of the stages 0 to 1 once"),
        ({"placement": Placement(stages=((0, 1), (1, 0)), chains=(0, 1))}, "1 microbatches do not divide over 2"),
        ({"microbatches": 0}, "0 microbatches do not divide"),
        ({"microbatches": 4}, "F of microbatch 3, chunk 0 is missing; and 7 more"),
        ({"microbatches": 9}, "9 microbatches a chain, but only 4 actions in all"),
    ],
)
def test_an_order_that_does_not_fit_its_counts_is_refused(changed: dict[str, object], fault: str) -> None:
    order = Order.of(((F0, BW0), (F0, BW0)), microbatches=1, placement=loop(2, 1))
    with pytest.raises(ConfigError, match=fault):
        locate(replace(order, **changed))  # type: ignore[arg-type]


ONES = ChunkTimes(forward=1, backward_input=1, backward_weight=1)


@pytest.mark.parametrize(
    ("times", "fault"),
    [
        (replace(ONES, forward=-1), r"forward: -1(\.0)? is not a time"),
        (replace(ONES, backward_weight=float("nan")), "backward_weight: nan is not a time"),
        (replace(ONES, backward=[[1.0], [-2.0]]), r"backward: -2\.0 is not a time"),
        (replace(ONES, forward=[1.0, 2.0, 3.0]), r"forward: times of shape \(3,\); give one number or .* \(2, 1\)"),
        (replace(ONES, p2p=[1.0, 2.0, 3.0]), r"p2p: times of shape \(3,\)"),
    ],
)
def test_times_that_cannot_be_are_refused_by_name(times: ChunkTimes, fault: str) -> None:
    order = registry.order("1f1b", ranks=2, chunks=1, microbatches=2)
    for run in (makespan, makespans, simulate):
        with pytest.raises(ConfigError, match=fault):
            run(order, times)


def test_sets_of_different_lengths_are_refused() -> None:
    order = registry.order("1f1b", ranks=2, chunks=1, microbatches=2)
    times = replace(ONES, forward=np.ones((3, 2, 1)), p2p=np.ones((4, 1)))
    with pytest.raises(ConfigError, match=r"leading axes of lengths \[1, 3, 4\]"):
        makespans(order, times)
