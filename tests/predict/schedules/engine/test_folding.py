"""A folded order is the builder's own, and its times are those of every action played, for all schedules that repeat themselves."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predict.schedules import registry
from predict.schedules.engine.folding import forms, steady_state
from predict.schedules.engine.order import Order
from predict.schedules.engine.timing import ChunkTimes, makespan, rank_ends, simulate
from predict.step.priced_rank import action_counts, windows_of

QUICK = settings(max_examples=150)
EXACT = 1e-9
REPEATING = [name for name in registry.names() if registry.get(name).period]


def in_full(order: Order) -> Order:
    """The same with every action written out."""
    return replace(order, rows=tuple(order.rows), folded=None)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Order, ChunkTimes, bool]:
    """Any schedule, with stage times that are equal, nearly equal, or anything, and transfers from none to longer than a stage."""
    name = draw(st.sampled_from(registry.names()))
    ranks, chunks = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    solved = registry.get(name).solver is not None
    microbatches = ranks * draw(st.integers(1, 3 if solved else 40)) + draw(st.integers(0, 3))
    fitting = [
        (of_chunks, count)
        for of_chunks in (chunks, 2, 1)
        for count in range(microbatches, microbatches + ranks + 2)
        if registry.get(name).refusal(ranks, of_chunks, count) is None
    ]
    if not fitting:
        name, fitting = "1f1b", [(1, microbatches)]
    chunks, microbatches = fitting[0]
    order = registry.order(name, ranks=ranks, chunks=chunks, microbatches=microbatches)
    random = np.random.default_rng(draw(st.integers(0, 10**9)))
    spread = draw(st.sampled_from((0.0, 0.01, 0.2, 0.9)))
    forward, backward_input, backward_weight = 1 + spread * random.uniform(-1, 1, (3, order.ranks, order.chunks))
    p2p = draw(st.sampled_from((0.0, 0.02, 0.3, 2.0))) * random.uniform(0.5, 1, order.placement.depth - 1)
    times = ChunkTimes(forward=forward, backward_input=1.1 * backward_input, backward_weight=backward_weight, p2p=p2p)
    return order, replace(times, overlap_gain=draw(st.sampled_from((0.0, 0.5)))), draw(st.booleans())


@QUICK
@given(case=cases())
def test_times_are_those_of_every_action_played(case: tuple[Order, ChunkTimes, bool]) -> None:
    order, times, blocking = case
    full = in_full(order)
    assert makespan(order, replace(times, blocking=blocking)) == pytest.approx(
        makespan(full, replace(times, blocking=blocking)), rel=EXACT
    )
    found, expected = (
        simulate(order, replace(times, blocking=blocking)),
        simulate(full, replace(times, blocking=blocking)),
    )
    for rank in range(order.ranks):
        np.testing.assert_allclose(found.start[rank], expected.start[rank], rtol=EXACT, atol=EXACT)
        np.testing.assert_allclose(found.end[rank], expected.end[rank], rtol=EXACT, atol=EXACT)
        for index in (0, len(order.rows[rank]) // 2, len(order.rows[rank]) - 1):
            assert found.when(rank, index) == pytest.approx(expected.when(rank, index), rel=EXACT, abs=EXACT)
    np.testing.assert_allclose(found.busy, expected.busy, rtol=EXACT)
    np.testing.assert_allclose(found.span, expected.span, rtol=EXACT)
    assert found.peak_chunks(0.5) == expected.peak_chunks(0.5)
    assert action_counts(order) == action_counts(full)
    np.testing.assert_allclose(np.array(windows_of(found)), np.array(windows_of(expected)), rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("name", REPEATING)
def test_many_sets_of_times_at_once_come_to_the_same(name: str) -> None:
    """Sets that find their pace at different lengths stand beside each other."""
    chunks = 1 if registry.get(name).refusal(4, 1, 64) is None else 2
    order = registry.order(name, ranks=4, chunks=chunks, microbatches=160)
    random = np.random.default_rng(1)
    spread = np.array([0.0, 0.001, 0.01, 0.3]).reshape(4, 1, 1)
    forward, backward_input, backward_weight = 1 + spread * random.uniform(-1, 1, (3, 4, 4, chunks))
    times = ChunkTimes(forward=forward, backward_input=backward_input, backward_weight=backward_weight, p2p=0.01)
    np.testing.assert_allclose(rank_ends(order, times), rank_ends(in_full(order), times), rtol=EXACT)


def counts_of(name: str) -> Iterator[tuple[int, int, int]]:
    for ranks in (1, 2, 3, 4, 6, 8):
        for chunks in (1, 2, 3, 5):
            for microbatches in (24 * ranks, 25 * ranks, 24 * ranks + 1, 24 * ranks + 2, 96 * ranks):
                if registry.get(name).refusal(ranks, chunks, microbatches) is None:
                    yield ranks, chunks, microbatches


@pytest.mark.parametrize("name", REPEATING)
def test_a_folded_order_is_the_one_that_its_builder_writes_out(name: str) -> None:
    folded = 0
    for ranks, chunks, microbatches in counts_of(name):
        order = registry.order(name, ranks=ranks, chunks=chunks, microbatches=microbatches)
        builder = registry.get(name).actions
        assert builder is not None
        for mine, built in zip(order.rows, builder(ranks, chunks, microbatches), strict=True):
            np.testing.assert_array_equal(mine, built)
        folded += order.folded is not None
    assert folded


@pytest.mark.parametrize("name", REPEATING)
def test_few_actions_are_timed_of_very_many(name: str) -> None:
    """With even stages the shortest form stands for the whole."""
    chunks = 1 if registry.get(name).refusal(4, 1, 64) is None else 2
    order = registry.order(name, ranks=4, chunks=chunks, microbatches=4096)
    found = simulate(order, ChunkTimes(forward=1.0, backward_input=1.0, backward_weight=1.0))
    assert found.form is not None
    assert found.form.short.microbatches <= 64


def test_a_pace_of_several_microbatches_together_is_found() -> None:
    """Transfers longer than what hides them make 1F1B go on by twos: a zigzag between two ranks takes two microbatches."""
    order = registry.order("1f1b", ranks=2, chunks=1, microbatches=4001)
    times = ChunkTimes(forward=1.0, backward_input=1.0, backward_weight=1.0, p2p=0.3)
    found = simulate(order, times)
    assert found.form is not None
    assert len(forms_tried(order, found.form.copies)) <= 2
    assert found.makespan == pytest.approx(makespan(in_full(order), times), rel=EXACT)


def forms_tried(order: Order, copies: int) -> list[int]:
    return [form.copies for form in forms(order) if form.copies <= copies and form.more]


def test_phases_that_wait_for_the_start_of_another_are_not_folded() -> None:
    """The backwards of AFAB wait for forwards any number of microbatches before."""
    assert steady_state(registry.order("afab", ranks=3, chunks=1, microbatches=30), 1) is None
