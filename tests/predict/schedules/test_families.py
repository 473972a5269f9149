"""Closed forms of schedules, and what solved ones keep."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import predict.schedules
from predict.schedules import registry
from predict.schedules.building import schedule
from predict.schedules.engine.timing import ChunkTimes, makespan, simulate
from predict.schedules.families import v_half
from predict.schedules.order_search import EQUAL
from sampling.errors import ConfigError

TIME = st.floats(0.1, 10)
QUICK = settings(max_examples=30)


@QUICK
@given(p=st.integers(1, 8), rounds=st.integers(1, 4), v=st.integers(1, 4), f=TIME, b=TIME, w=TIME)
def test_interleaving_divides_the_bubble_by_the_chunks(
    p: int, rounds: int, v: int, f: float, b: float, w: float
) -> None:
    """E + (p − 1)(f + b + w)/v, and with W apart E + (p − 1)·max(f, f + b − w)/v; in full-rank times."""
    m = p * rounds
    times = ChunkTimes(forward=f / v, backward_input=b / v, backward_weight=w / v)
    whole = simulate(registry.order("interleaved-1f1b", ranks=p, chunks=v, microbatches=m), times)
    assert whole.makespan == pytest.approx(m * (f + b + w) + (p - 1) * (f + b + w) / v)
    assert whole.peak_chunks() == tuple(min(m * v, (v - 1) * p + 2 * (p - 1 - rank) + 1) for rank in range(p))


@QUICK
@given(p=st.integers(1, 8), extra=st.integers(0, 12), f=TIME, b=TIME, w=TIME)
def test_zero_bubble_closed_forms(p: int, extra: int, f: float, b: float, w: float) -> None:
    """H1: E + (p − 1)·max(f + b − w, f), p activations; H2: E + (p − 1)·max(f, f + b − 2w), 2p − 1 of them."""
    m = 2 * p + extra
    times = ChunkTimes(forward=f, backward_input=b, backward_weight=w)
    h1, h2 = (simulate(registry.order(name, ranks=p, chunks=1, microbatches=m), times) for name in ("zb-h1", "zb-h2"))
    assert h1.peak_chunks() == (p,) * p
    assert h2.peak_chunks() == (2 * p - 1,) * p
    if w <= f and w <= b:
        assert h1.makespan == pytest.approx(m * (f + b + w) + (p - 1) * max(f + b - w, f))
        assert h2.makespan == pytest.approx(m * (f + b + w) + (p - 1) * max(f, f + b - 2 * w))


@pytest.mark.parametrize(("solved", "by_hand", "chunks"), [("zb-auto", "zb-h1", 1), ("zbv-greedy", "zbv", 2)])
@QUICK
@given(p=st.integers(2, 7), m=st.integers(2, 14), f=TIME, b=TIME, w=TIME, c=st.floats(0, 1))
def test_solving_is_never_worse_than_the_order_by_hand(
    solved: str, by_hand: str, chunks: int, p: int, m: int, f: float, b: float, w: float, c: float
) -> None:
    """Within the same memory; makespans within 0.01 % are equal."""
    times = ChunkTimes(forward=f, backward_input=b, backward_weight=w, p2p=c)
    found = []
    for name in (solved, by_hand):
        order = registry.order(name, ranks=p, chunks=chunks, microbatches=m, times=times, memory_limit=p * chunks)
        found.append(makespan(order, times))
    assert found[0] <= EQUAL * found[1] * (1 + 1e-9)


@pytest.mark.parametrize(("name", "chunks"), [("zb-auto", 1), ("zbv-greedy", 2)])
@QUICK
@given(data=st.data(), factor=st.sampled_from([0.1, 1e-3, 1e6, 3.0, 1 / 7]))
def test_solving_does_not_depend_on_the_unit_of_time(
    name: str, chunks: int, data: st.DataObject, factor: float
) -> None:
    """Times of one decimal, so that there are ties, which rounding would break here and not there."""
    ranks, microbatches = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 8))
    tenths = st.integers(1, 30).map(lambda count: count / 10)
    table = st.one_of(
        tenths, st.lists(st.lists(tenths, min_size=chunks, max_size=chunks), min_size=ranks, max_size=ranks)
    )
    times = {kind: data.draw(table) for kind in ("forward", "backward_input", "backward_weight")}
    times["p2p"] = data.draw(st.integers(0, 10)) / 10
    limit = data.draw(st.sampled_from([None, chunks * ranks, 2 * chunks * ranks]))
    orders = [
        registry.order(
            name,
            ranks=ranks,
            chunks=chunks,
            microbatches=microbatches,
            times=ChunkTimes(**{kind: by * np.asarray(time) for kind, time in times.items()}),
            memory_limit=limit,
        )
        for by in (1.0, factor)
    ]
    assert all(np.array_equal(one, other) for one, other in zip(orders[0].rows, orders[1].rows, strict=True))


@pytest.mark.parametrize("name", ["zbv", "v-half", "v-min"])
@pytest.mark.parametrize("p", [2, 3, 4, 6])
def test_zbv_greedy_is_never_slower_than_what_keeps_its_limit(name: str, p: int) -> None:
    for m in (2, p, 3 * p):
        for c in (0.0, 0.7):
            times = ChunkTimes(forward=1, backward_input=1.3, backward_weight=0.6, p2p=c)
            by_hand = simulate(registry.order(name, ranks=p, chunks=2, microbatches=m), times)
            limit = max(by_hand.peak_chunks())
            order = registry.order("zbv-greedy", ranks=p, chunks=2, microbatches=m, times=times, memory_limit=limit)
            solved = simulate(order, times)
            assert solved.makespan <= EQUAL * by_hand.makespan
            assert max(solved.peak_chunks()) <= limit


@QUICK
@given(p=st.integers(1, 5), m=st.integers(1, 12), limit=st.integers(1, 10), f=TIME, b=TIME, w=TIME, c=st.floats(0, 1))
def test_zb_auto_keeps_a_limit_in_its_own_account(
    p: int, m: int, limit: int, f: float, b: float, w: float, c: float
) -> None:
    times = ChunkTimes(forward=f, backward_input=b, backward_weight=w, p2p=c)
    order = registry.order("zb-auto", ranks=p, chunks=1, microbatches=m, times=times, memory_limit=limit)
    assert max(simulate(order, times).peak_chunks(released_by_b=0.5)) <= limit


@pytest.mark.parametrize("p", range(1, 9))
def test_activations_of_the_v_schedules(p: int) -> None:
    ones = ChunkTimes(forward=1, backward_input=1, backward_weight=1)
    m = 4 * p
    peaks = {
        name: max(simulate(registry.order(name, ranks=p, chunks=2, microbatches=m), ones).peak_chunks())
        for name in ("zbv", "zbv-greedy", "v-half", "v-min", "dualpipev")
    }
    assert peaks["zbv"] == peaks["zbv-greedy"] == 2 * p
    assert peaks["dualpipev"] == 2 * p + 1
    assert peaks["v-half"] <= p + 2
    assert peaks["v-min"] <= 2 * p / 3 + 3
    assert simulate(registry.order("zbv", ranks=p, chunks=2, microbatches=m), ones).makespan == 6 * m + p - 1


@pytest.mark.parametrize("p", [2, 4, 6])
def test_dualpipe_holds_one_stage_more_than_ranks(p: int) -> None:
    ones = ChunkTimes(forward=1, backward_input=1, backward_weight=1)
    timeline = simulate(registry.order("dualpipe", ranks=p, chunks=2, microbatches=4 * p), ones)
    assert timeline.peak_chunks() == (p + 1,) * p


@pytest.mark.parametrize("name", ["v-half", "v-min"])
@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_many_microbatches_repeat_the_steady_state(name: str, p: int) -> None:
    """The same as if all of them had been solved at once."""
    block = {"v-half": v_half.v_half_block, "v-min": v_half.v_min_block}[name]
    m = 5 * p + 7
    whole = v_half._solve_all(block, p, m)
    built = registry.order(name, ranks=p, chunks=2, microbatches=m)
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(built.rows, whole, strict=True))


@pytest.mark.parametrize(
    ("name", "ranks", "chunks", "microbatches", "rule"),
    [
        ("interleaved-1f1b", 4, 2, 11, "11 microbatches on 4 ranks make 2 unequal ones; the nearest"),
        ("interleaved-zb", 4, 2, 14, "14 microbatches on 4 ranks make 3 unequal ones"),
        ("dualpipe", 3, 2, 12, "needs an even number of ranks, not 3"),
        ("dualpipe", 4, 2, 9, "needs an even number of microbatches, not 9"),
        ("dualpipe", 4, 2, 6, "needs at least 2 × ranks = 8 microbatches, not 6"),
        ("dualpipev", 4, 2, 7, "needs at least 2 × ranks = 8 microbatches, not 7"),
        ("zbv", 4, 1, 7, "needs two chunks per rank (plan.vpp), not 1"),
        ("1f1b", 1, 1, 20_000_000, "is timed up to 131,072 microbatches, not 20,000,000"),
    ],
)
def test_counts_are_refused_with_the_rule(name: str, ranks: int, chunks: int, microbatches: int, rule: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(rule)):
        registry.order(name, ranks=ranks, chunks=chunks, microbatches=microbatches)


def test_the_work_of_an_order_does_not_grow_with_the_square_of_the_ranks() -> None:
    """Ranks were once looked at in turn, p times over."""
    found = predict.schedules.makespan(
        "1f1b", ranks=2**12, chunks=1, microbatches=2, forward=1, backward_input=1, backward_weight=1
    )
    assert found == 3 * (2 + 2**12 - 1)


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
    assert afab.peak_chunks() == (m,) * p
    one_f_one_b = simulate(registry.order("1f1b", ranks=p, chunks=1, microbatches=m), times)
    assert one_f_one_b.peak_chunks() == tuple(min(m, p - rank) for rank in range(p))


def test_a_name_is_registered_once() -> None:
    taken = registry.get("afab")
    with pytest.raises(ValueError, match="two schedules are named 'afab'"):
        schedule(
            "afab",
            citation="",
            splits_backward=False,
            supports=taken.supports,
            placement=taken.placement,
        )(taken.actions)


@pytest.mark.parametrize(("name", "said"), [("zb-h3", "; did you mean 'zb-h2'?"), ("nothing", "; known: 1f1b, afab, ")])
def test_an_unknown_name_is_refused_with_the_nearest_or_else_with_all(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{name!r} is not a schedule{said}")):
        registry.get(name)


def test_an_order_is_built_once() -> None:
    first = registry.order("1f1b", ranks=3, chunks=1, microbatches=5)
    assert registry.order("1f1b", ranks=3, chunks=1, microbatches=5) is first


@pytest.mark.parametrize("name", registry.names())
def test_a_schedule_says_whether_all_forwards_come_first(name: str) -> None:
    named = registry.get(name)
    chunks = next(count for count in (1, 2) if named.refusal(4, count, 8) is None)
    assert registry.order(name, ranks=4, chunks=chunks, microbatches=8).forwards_first == named.forwards_first
