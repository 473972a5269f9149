"""Every schedule of predict/schedules/families keeps the laws of a pipeline, comes back from its files and makes a step; a file dropped in is
held to them by itself."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predict.schedules import registry
from predict.schedules.engine.order import Placement, locate
from predict.schedules.engine.timing import ChunkTimes, simulate
from predict.schedules.order_files import read_order, write_order
from predict.step.priced_rank import action_counts
from predict.workload.decompose import decompose
from tests.predict.schedules.orders import same
from tests.predict.step.ledger_sums import assert_ledger_holds
from tests.predict.step.small_runs import predicted, run

TIME = st.floats(0.1, 10)
QUICK = settings(max_examples=30)
PP = 4
SUPPORTED = {
    name: [
        found for found in product(range(1, 7), (1, 2, 3), range(1, 17)) if registry.get(name).refusal(*found) is None
    ]
    for name in registry.names()
}
"""Schedule → the ranks, chunks and microbatches that it runs."""


@pytest.fixture(params=registry.names(), scope="module")
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@st.composite
def uneven_times(draw: st.DrawFn, ranks: int, chunks: int) -> ChunkTimes:
    table = st.lists(st.lists(TIME, min_size=chunks, max_size=chunks), min_size=ranks, max_size=ranks)
    return ChunkTimes(
        forward=draw(table), backward_input=draw(table), backward_weight=draw(table), p2p=draw(st.floats(0, 3))
    )


@QUICK
@given(data=st.data(), blocking=st.booleans())
def test_schedule_is_complete_and_keeps_the_bounds_of_uneven_stages(
    name: str, data: st.DataObject, blocking: bool
) -> None:
    ranks, chunks, microbatches = data.draw(st.sampled_from(SUPPORTED[name]))
    times = data.draw(uneven_times(ranks, chunks))
    order = registry.order(name, ranks=ranks, chunks=chunks, microbatches=microbatches, times=times)
    locate(order)
    assert (order.ranks, order.chunks, order.microbatches) == (ranks, chunks, microbatches)
    splits = any(action.kind == "B" for row in order.actions for action in row)
    assert splits <= registry.get(name).splits_backward
    timeline = simulate(order, replace(times, blocking=blocking))
    forward, backward_input, backward_weight = map(
        np.array, (times.forward, times.backward_input, times.backward_weight)
    )
    work = (forward + backward_input + backward_weight).sum(axis=1) * order.share
    assert timeline.busy == pytest.approx(work)
    # A rank has its work to do after the first microbatch has come to it, and a microbatch its way to go.
    placement = order.placement
    depth = placement.depth
    edges = [0.0 if placement_rank(placement, s) == placement_rank(placement, s + 1) else 1.0 for s in range(depth - 1)]
    way = sum(forward[at] + backward_input[at] for at in chain_places(placement)) + 2 * times.p2p * sum(edges)
    assert timeline.makespan >= max(work.max(), way) - 1e-9
    assert timeline.span.max() <= timeline.makespan + 1e-9
    for rank, start in enumerate(timeline.start):
        assert start[0] + work[rank] <= timeline.makespan + 1e-9
    assert all(1 <= peak <= order.share * chunks for peak in timeline.peak_chunks())


def chain_places(placement: Placement) -> list[tuple[int, int]]:
    """(rank, chunk) of each stage of the first chain."""
    holders = placement.holders()
    return [holders[0, stage] for stage in range(placement.depth)]


def placement_rank(placement: Placement, stage: int) -> int:
    return chain_places(placement)[stage][0]


@QUICK
@given(data=st.data(), edge=st.floats(0, 2))
def test_a_slower_edge_never_makes_an_order_faster(name: str, data: st.DataObject, edge: float) -> None:
    ranks, chunks, microbatches = data.draw(st.sampled_from(SUPPORTED[name]))
    order = registry.order(name, ranks=ranks, chunks=chunks, microbatches=microbatches)
    quick, slow, blocked = (
        simulate(order, ChunkTimes(forward=1, backward_input=1, backward_weight=1, p2p=p2p, blocking=blocking)).makespan
        for p2p, blocking in ((0.0, False), (edge, False), (edge, True))
    )
    assert quick <= slow + 1e-9
    assert slow <= blocked + 1e-9


def test_the_largest_pipelines_run_or_are_refused(name: str) -> None:
    """A few of the 64 ranks × 8 chunks × 4096 microbatches; `make bench` and hand runs have the rest."""
    for ranks, chunks, microbatches in ((64, 1, 192), (64, 2, 192), (63, 8, 126), (1, 1, 4096), (1, 2, 4096)):
        reason = registry.get(name).refusal(ranks, chunks, microbatches)
        if reason is None:
            order = registry.order(name, ranks=ranks, chunks=chunks, microbatches=microbatches)
            busy = simulate(order, ChunkTimes(forward=1, backward_input=1, backward_weight=1)).busy
            assert (busy == 3 * order.share * chunks).all()


def chunks_of(name: str) -> int:
    return 1 if registry.get(name).refusal(PP, 1, 8) is None and not name.startswith("interleaved") else 2


def test_every_schedule_is_estimated_and_accounts_for_all_time(name: str) -> None:
    subject = run(pp=PP, vpp=chunks_of(name), schedule=name)
    result = predicted(subject)
    assert_ledger_holds(result)
    assert result.step_time.low_us < result.step_time.median_us < result.step_time.high_us
    copies = registry.get(name).placement(PP, chunks_of(name)).chain_count
    assert sum(rank.layers for rank in decompose(subject)) == copies * subject.model.layers
    assert len(result.stages) == PP
    counts = action_counts(result.timeline.order)
    for row in counts:
        for done in row:
            assert done["F"] == done["BW"] + done["B"] == done["BW"] + done["W"] == subject.microbatches // copies


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_every_order_comes_back_as_it_was(name: str, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"order{suffix}"
    for ranks, chunks, microbatches in SUPPORTED[name][::20]:
        order = registry.order(name, ranks=ranks, chunks=chunks, microbatches=microbatches)
        if suffix == ".json" or order.placement.chain_count == 1:
            write_order(order, path)
            assert same(read_order(path), order)
