"""A forward and a backward that run as one pair: they wait for both inputs, end together, and may overlap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predict.schedules import registry
from predict.schedules.engine.order import PAIRED, Order, loop, rows
from predict.schedules.engine.timing import ChunkTimes, makespan, makespans, simulate
from sampling.errors import ConfigError

QUICK = settings(max_examples=40)
TIME = st.floats(0.1, 4)


def two_ranks() -> Order:
    """Rank 0 runs F1 with the backward of microbatch 0, which rank 1 has to finish first."""
    f, bw = (lambda kind, microbatch, *, paired=False: rows(kind, [microbatch], paired=paired) for _ in range(2))
    first = [f("F", 0), f("F", 1, paired=True), bw("BW", 0, paired=True), bw("BW", 1)]
    second = [f("F", 0), bw("BW", 0), f("F", 1), bw("BW", 1)]
    return Order(rows=(np.concatenate(first), np.concatenate(second)), microbatches=2, placement=loop(2, 1))


def test_a_pair_waits_for_both_inputs_and_hands_over_at_its_end() -> None:
    timeline = simulate(two_ranks(), ChunkTimes(forward=1, backward_input=1, backward_weight=1))
    # F1 of rank 0 could start at 1, but the backward it is paired with comes at 4; rank 1 gets F1 when the pair is done.
    assert timeline.start[0].tolist() == [0, 4, 5, 10]
    assert timeline.start[1].tolist() == [1, 2, 7, 8]


@pytest.mark.parametrize(("gain", "pair"), [(0.0, 3.0), (0.5, 2.5), (1.0, 2.0)])
def test_the_gain_hides_a_share_of_the_shorter_half(gain: float, pair: float) -> None:
    times = ChunkTimes(forward=1, backward_input=1, backward_weight=1, overlap_gain=gain)
    timeline = simulate(two_ranks(), times)
    assert timeline.end[0][2] - timeline.start[0][1] == pytest.approx(pair)
    assert timeline.makespan == makespan(two_ranks(), times)


@QUICK
@given(half=st.integers(1, 3), extra=st.integers(0, 4), f=TIME, b=TIME, w=TIME, c=st.floats(0, 1), gain=st.floats(0, 1))
def test_overlap_never_slows_and_all_timings_agree(
    half: int, extra: int, f: float, b: float, w: float, c: float, gain: float
) -> None:
    ranks, microbatches = 2 * half, 4 * half + 2 * extra
    for name in ("dualpipe", "dualpipev"):
        order = registry.order(name, ranks=ranks, chunks=2, microbatches=microbatches)
        times = ChunkTimes(forward=f, backward_input=b, backward_weight=w, p2p=c, overlap_gain=gain)
        for blocking in (False, True):
            found = makespan(order, times, blocking=blocking)
            assert simulate(order, times, blocking=blocking).makespan == pytest.approx(found)
            together = replace(times, forward=np.full((2, 1, 1), f))
            assert makespans(order, together, blocking=blocking) == pytest.approx([found, found])
            assert found <= makespan(order, replace(times, overlap_gain=0.0), blocking=blocking) + 1e-9


def test_a_gain_that_is_no_share_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"overlap_gain: 1\.5 is not a share"):
        makespan(two_ranks(), ChunkTimes(forward=1, backward_input=1, backward_weight=1, overlap_gain=1.5))


def test_a_pair_of_other_actions_is_refused() -> None:
    order = two_ranks()
    apart = order.rows[0].copy()
    apart[2, PAIRED], apart[3, PAIRED] = 0, 1
    with pytest.raises(ConfigError, match="rank 0: a pair is not an F and the BW right after it"):
        makespan(
            replace(order, rows=(apart, order.rows[1])), ChunkTimes(forward=1, backward_input=1, backward_weight=1)
        )
