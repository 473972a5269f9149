"""Every registered schedule keeps the laws of a pipeline; AFAB and 1F1B have their closed forms."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import predict.schedules
from predict.schedules import registry
from predict.schedules.engine import ChunkTimes, makespan, simulate
from predict.schedules.positions import check
from sampling.errors import ConfigError

COUNTS = st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 14))
TIME = st.floats(0.1, 10)
QUICK = settings(max_examples=60, deadline=None, derandomize=True)


@pytest.mark.parametrize("name", registry.names())
@QUICK
@given(counts=COUNTS, f=TIME, b=TIME, w=TIME, c=st.floats(0, 3), blocking=st.booleans())
def test_schedule_is_complete_and_keeps_the_bounds(
    name: str, counts: tuple[int, int, int], f: float, b: float, w: float, c: float, blocking: bool
) -> None:
    ranks, chunks, microbatches = counts
    schedule = registry.get(name)
    if schedule.supports(*counts):
        return
    order = schedule.make(*counts)
    check(order)
    assert (order.ranks, order.chunks, order.microbatches) == counts
    assert schedule.splits_backward == any(action.kind == "B" for row in order.actions for action in row)
    timeline = simulate(order, ChunkTimes(forward=f, backward_input=b, backward_weight=w, p2p=c), blocking=blocking)
    depth = order.placement.depth
    busiest = microbatches * chunks / order.placement.chain_count * (f + b + w)
    assert timeline.busy == pytest.approx([busiest] * ranks)
    # W is off the way of a microbatch; so is its transfer where neighbouring stages are on one rank.
    way = depth * (f + b) + 2 * c * (ranks - 1)
    assert timeline.makespan >= max(busiest, way) - 1e-9
    assert all(1 <= peak <= microbatches * chunks for peak in timeline.peak_activations)


@QUICK
@given(p=st.integers(1, 12), m=st.integers(1, 40), f=TIME, b=TIME, w=TIME)
def test_afab_and_1f1b_take_m_plus_p_minus_1_rounds(p: int, m: int, f: float, b: float, w: float) -> None:
    for name in ("afab", "1f1b"):
        timeline = simulate(
            registry.order(name, ranks=p, chunks=1, microbatches=m),
            ChunkTimes(forward=f, backward_input=b, backward_weight=w),
        )
        assert timeline.makespan == pytest.approx((m + p - 1) * (f + b + w))
        assert timeline.bubble_fraction == pytest.approx((p - 1) / (m + p - 1))


@QUICK
@given(p=st.integers(1, 12), m=st.integers(1, 40), f=TIME, b=TIME, w=TIME, c=st.floats(0, 5))
def test_afab_pays_each_edge_twice(p: int, m: int, f: float, b: float, w: float, c: float) -> None:
    order = registry.order("afab", ranks=p, chunks=1, microbatches=m)
    times = ChunkTimes(forward=f, backward_input=b, backward_weight=w, p2p=c)
    assert makespan(order, times) == pytest.approx((m + p - 1) * (f + b + w) + 2 * (p - 1) * c)


@QUICK
@given(p=st.integers(2, 12), rounds=st.integers(1, 6), f=TIME, b=TIME, w=TIME, share=st.floats(0, 0.5))
def test_1f1b_pays_for_the_round_trips_of_its_steady_state(
    p: int, rounds: int, f: float, b: float, w: float, share: float
) -> None:
    """c[2(p−1)m/p + 2(p−2)] where p divides m, for transfers that are short beside the work."""
    m = p * rounds
    c = share * min(f, b + w)
    order = registry.order("1f1b", ranks=p, chunks=1, microbatches=m)
    found = makespan(order, ChunkTimes(forward=f, backward_input=b, backward_weight=w, p2p=c))
    assert found == pytest.approx((m + p - 1) * (f + b + w) + c * (2 * (p - 1) * m / p + 2 * (p - 2)))


@pytest.mark.parametrize(("p", "m"), [(4, 2), (4, 3), (4, 4), (4, 9), (8, 1), (1, 5)])
def test_activations_held(p: int, m: int) -> None:
    times = ChunkTimes(forward=1, backward_input=1, backward_weight=1)
    afab = simulate(registry.order("afab", ranks=p, chunks=1, microbatches=m), times)
    assert afab.peak_activations == (m,) * p
    assert afab.peak_at == tuple(float(rank + m - 1) for rank in range(p))
    one_f_one_b = simulate(registry.order("1f1b", ranks=p, chunks=1, microbatches=m), times)
    assert one_f_one_b.peak_activations == tuple(min(m, p - rank) for rank in range(p))


def test_names_are_those_of_the_registry() -> None:
    assert predict.schedules.names() == registry.names()


def test_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"plan\.schedule: '1f1' is not a schedule; did you mean '1f1b'\?"):
        registry.get("1f1")


def test_counts_a_schedule_cannot_run_are_named() -> None:
    with pytest.raises(ConfigError, match=r"1f1b has one chunk a rank, not 2 \(ranks=4, chunks=2, microbatches=8\)"):
        registry.order("1f1b", ranks=4, chunks=2, microbatches=8)
    with pytest.raises(ConfigError, match=r"needs at least one of each, not ranks=0, microbatches=-1"):
        registry.order("afab", ranks=0, chunks=1, microbatches=-1)


def test_a_name_is_registered_once() -> None:
    taken = registry.get("afab")
    with pytest.raises(ValueError, match="two schedules are named 'afab'"):
        registry.schedule(
            "afab",
            citation="",
            splits_backward=False,
            supports=taken.supports,
            placement=taken.placement,
        )(taken.actions)


def test_an_order_is_built_once() -> None:
    first = registry.order("1f1b", ranks=3, chunks=1, microbatches=5)
    assert registry.order("1f1b", ranks=3, chunks=1, microbatches=5) is first


def test_makespan_by_name() -> None:
    found = predict.schedules.makespan(
        "1f1b", ranks=2, chunks=1, microbatches=8, forward=1, backward_input=1.2, backward_weight=0.8, p2p=0.05
    )
    assert found == pytest.approx(9 * 3.0 + 0.05 * 8)
