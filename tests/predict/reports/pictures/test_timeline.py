"""The steady state of a timeline: its period, how often it repeats, and what has none."""

import numpy as np
import pytest

from predict.reports.pictures.timeline import TimeAxis, steady_state
from predict.schedules import registry
from predict.schedules.engine.timing import ChunkTimes, Timeline, simulate

TIMES = ChunkTimes(forward=1.0, backward_input=1.0, backward_weight=1.0)


def timed(name: str, ranks: int, chunks: int, microbatches: int) -> Timeline:
    return simulate(registry.order(name, ranks=ranks, chunks=chunks, microbatches=microbatches, times=TIMES), TIMES)


@pytest.mark.parametrize(
    ("name", "ranks", "chunks", "microbatches", "period"),
    [
        ("1f1b", 8, 1, 64, 3),
        ("zb-h1", 8, 1, 64, 3),
        ("zbv", 8, 2, 64, 6),
        ("dualpipe", 8, 2, 64, 6),
        ("interleaved-1f1b", 4, 2, 64, 4 * 2 * 3),
    ],
)
def test_a_period_is_the_work_of_its_microbatches(
    name: str, ranks: int, chunks: int, microbatches: int, period: float
) -> None:
    found = steady_state(timed(name, ranks, chunks, microbatches))
    assert found
    assert found.period == pytest.approx(period)
    assert found.count * found.period > timed(name, ranks, chunks, microbatches).makespan / 2


def test_every_rank_does_the_same_a_period_later() -> None:
    line = timed("zbv", 4, 2, 32)
    found = steady_state(line)
    assert found
    last = found.start + (found.count - 1) * found.period
    for start in line.start:
        once = start[(start >= found.start) & (start < last - 1e-6)]
        later = start[(start >= found.start + found.period - 1e-6) & (start < last + found.period - 1e-6)]
        assert later == pytest.approx(once + found.period)


@pytest.mark.parametrize(("name", "microbatches"), [("1f1b", 4), ("afab", 2)])
def test_a_short_step_has_none(name: str, microbatches: int) -> None:
    assert steady_state(timed(name, 4, 1, microbatches)) is None


def test_the_axis_leaves_the_repeats_out_and_shows_cut_actions_on_either_side() -> None:
    line = timed("1f1b", 4, 1, 64)
    found = steady_state(line)
    assert found
    axis = TimeAxis.without_repeats(line.makespan, found, gap_share=0.1)
    assert axis.gap == pytest.approx(0.1 * axis.length)
    assert axis.returns - axis.leaves == pytest.approx((found.count - 1) * found.period)
    ends = axis.place(np.array([0.0, axis.leaves, axis.returns + 1, line.makespan]))
    assert ends.tolist() == pytest.approx([0.0, axis.leaves, axis.leaves + axis.gap + 1, axis.length])
    start, end, index = axis.shown(np.array([axis.leaves - 1]), np.array([axis.returns + 2]))
    assert index.tolist() == [0, 0]
    assert (end - start).tolist() == pytest.approx([1.0, 2.0])
    assert not [tick for tick in axis.ticks(10) if axis.leaves < tick < axis.returns]
