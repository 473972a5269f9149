"""The engine against a simulation of events on random orders and times, and against the laws of time."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predict.schedules import registry
from predict.schedules.engine import timing as engine
from predict.schedules.engine.order import (
    PAIRED,
    Action,
    Order,
    Placement,
    locate,
    loop,
    opposite_chains,
    rows,
    v_shape,
)
from predict.schedules.engine.timing import ChunkTimes, makespan, makespans, simulate
from sampling.errors import ConfigError, InfeasibleError

SEEDS = st.integers(0, 10**9)
QUICK = settings(max_examples=60)
Op = tuple[int, Action]


def placements(ranks: int) -> list[Placement]:
    """Loop of 1 to 3 chunks, a V, and two opposite chains."""
    return [
        *(loop(ranks, chunks) for chunks in (1, 2, 3)),
        v_shape(ranks, 2),
        opposite_chains(ranks, 2),
    ]


def needs(op: Op, placement: Placement) -> list[tuple[int, tuple[str, ...], int, int]]:
    """What the action waits for, as (rank, kinds either of which will do, microbatch, chunk), from the definition."""
    rank, (kind, microbatch, chunk) = op
    stage, chain = placement.stages[rank][chunk], placement.chains[chunk]
    if kind == "W":
        return [(rank, ("B",), microbatch, chunk)]
    if kind != "F" and stage == placement.depth - 1:
        return [(rank, ("F",), microbatch, chunk)]
    wanted, kinds = (stage - 1, ("F",)) if kind == "F" else (stage + 1, ("B", "BW"))
    return [
        (other, kinds, microbatch, at)
        for other, row in enumerate(placement.stages)
        for at, held in enumerate(row)
        if held == wanted and placement.chains[at] == chain
    ]


def is_met(op: Op, placement: Placement, done: dict[Op, float]) -> bool:
    return all(
        any((rank, Action(kind, microbatch, chunk)) in done for kind in kinds)  # type: ignore[arg-type]
        for rank, kinds, microbatch, chunk in needs(op, placement)
    )


def random_order(seed: int) -> Order:
    """Any action that can run, one after the other: every order of this kind can run to its end."""
    draw = random.Random(seed)
    placement = draw.choice(placements(draw.randint(1, 4)))
    share = draw.randint(1, 4)
    open_ops: list[Op] = []
    for rank, row in enumerate(placement.stages):
        for chunk in range(len(row)):
            for microbatch in range(share):
                kinds = draw.choice([("F", "BW"), ("F", "B", "W")])
                open_ops += [(rank, Action(kind, microbatch, chunk)) for kind in kinds]  # type: ignore[arg-type]
    done: dict[Op, float] = {}
    actions: list[list[Action]] = [[] for _ in placement.stages]
    while open_ops:
        op = draw.choice([op for op in open_ops if is_met(op, placement, done)])
        open_ops.remove(op)
        done[op] = 0.0
        actions[op[0]].append(op[1])
    return Order.of(actions, microbatches=share * placement.chain_count, placement=placement)


def random_times(order: Order, seed: int, sets: int = 0) -> ChunkTimes:
    draw = np.random.default_rng(seed)
    lead = (sets,) if sets else ()
    forward, backward_input, backward_weight, backward = draw.uniform(0, 5, (4, *lead, order.ranks, order.chunks))
    return ChunkTimes(
        forward=forward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        backward=backward if seed % 2 else None,
        p2p=draw.uniform(0, 2, (*lead, order.placement.depth - 1)),
    )


def duration(op: Op, times: ChunkTimes) -> float:
    rank, (kind, _, chunk) = op
    forward, backward_input, backward_weight = (
        float(np.asarray(table)[rank, chunk]) for table in (times.forward, times.backward_input, times.backward_weight)
    )
    whole = backward_input + backward_weight
    if times.backward is not None:
        whole = float(np.asarray(times.backward)[rank, chunk])
    return {"F": forward, "B": backward_input, "W": backward_weight, "BW": whole}[kind]


def simulate_events(order: Order, times: ChunkTimes, blocking: bool) -> dict[Op, tuple[float, float]]:
    """Messages in flight and ranks with a clock: start whatever is next on a rank once its message is there."""
    placement = order.placement
    p2p = np.asarray(times.p2p)
    clock = [0.0] * order.ranks
    cursor = [0] * order.ranks
    ran: dict[Op, tuple[float, float]] = {}
    arrived: dict[tuple[Op, int], float] = {}
    while any(at < len(row) for at, row in zip(cursor, order.actions, strict=True)):
        for rank, row in enumerate(order.actions):
            if cursor[rank] == len(row):
                continue
            op = (rank, row[cursor[rank]])
            inbox = [
                arrived.get(((other, Action(kind, microbatch, chunk)), rank))  # type: ignore[arg-type]
                for other, kinds, microbatch, chunk in needs(op, placement)
                for kind in kinds
                if Action(kind, microbatch, chunk) in order.actions[other]  # type: ignore[arg-type]
            ]
            if None in inbox:
                continue
            start = max([clock[rank], *(message for message in inbox if message is not None)])
            clock[rank] = end = start + duration(op, times)
            ran[op] = (start, end)
            cursor[rank] += 1
            arrived[op, rank] = end
            stage = placement.stages[rank][op[1].chunk]
            edge = stage if op[1].kind == "F" else stage - 1
            if op[1].kind != "W" and 0 <= edge < placement.depth - 1:
                target = edge + 1 if op[1].kind == "F" else edge
                chain = placement.chains[op[1].chunk]
                (receiver,) = (
                    other
                    for other, held in enumerate(placement.stages)
                    if (target, chain) in zip(held, placement.chains, strict=True)
                )
                if receiver != rank:
                    arrived[op, receiver] = end + p2p[edge]
                    clock[rank] = end + p2p[edge] if blocking else end
    return ran


@QUICK
@given(seed=SEEDS, blocking=st.booleans())
def test_agrees_with_a_simulation_of_events(seed: int, blocking: bool) -> None:
    order = random_order(seed)
    locate(order)
    times = random_times(order, seed)
    timeline = simulate(order, replace(times, blocking=blocking))
    ran = simulate_events(order, times, blocking)
    for rank, actions in enumerate(order.actions):
        expected = np.array([ran[rank, action] for action in actions])
        np.testing.assert_allclose(timeline.start[rank], expected[:, 0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(timeline.end[rank], expected[:, 1], rtol=1e-12, atol=1e-12)
    assert makespan(order, replace(times, blocking=blocking)) == pytest.approx(timeline.makespan, rel=1e-14)


@QUICK
@given(seed=SEEDS, blocking=st.booleans())
def test_many_sets_at_once_equal_each_alone(seed: int, blocking: bool) -> None:
    order = random_order(seed)
    times = random_times(order, seed, sets=5)
    alone = [
        makespan(
            order,
            ChunkTimes(
                forward=np.asarray(times.forward)[index],
                backward_input=np.asarray(times.backward_input)[index],
                backward_weight=np.asarray(times.backward_weight)[index],
                backward=None if times.backward is None else np.asarray(times.backward)[index],
                p2p=np.asarray(times.p2p)[index],
                blocking=blocking,
            ),
        )
        for index in range(5)
    ]
    assert makespans(order, replace(times, blocking=blocking)).tolist() == alone


def test_sets_are_cut_into_blocks_that_bound_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    order = random_order(7)
    times = random_times(order, 7, sets=11)
    whole = makespans(order, times)
    monkeypatch.setattr(engine, "BLOCK_BYTES", 3 * 8 * sum(map(len, order.actions)))
    assert makespans(order, times).tolist() == whole.tolist()


def test_sets_and_single_values_mix() -> None:
    order = registry.order("1f1b", ranks=3, chunks=1, microbatches=4)
    some = ChunkTimes(forward=1, backward_input=[[1.0], [2.0], [3.0]], backward_weight=0.5, p2p=[[0.1], [0.2]])
    alone = [makespan(order, replace(some, p2p=value)) for value in (0.1, 0.2)]
    assert makespans(order, some).tolist() == alone
    assert makespans(order, replace(some, p2p=0.1)).tolist() == alone[:1]


@QUICK
@given(seed=SEEDS, blocking=st.booleans())
def test_busy_time_and_bubble_add_up_to_the_makespan(seed: int, blocking: bool) -> None:
    order = random_order(seed)
    times = random_times(order, seed)
    timeline = simulate(order, replace(times, blocking=blocking))
    work = [sum(duration((rank, action), times) for action in row) for rank, row in enumerate(order.actions)]
    assert timeline.busy == pytest.approx(work)
    idle = timeline.makespan - timeline.busy
    assert (idle >= -1e-9).all()
    assert (timeline.span <= timeline.makespan + 1e-9).all()
    last_end = max(float(end[-1]) for end in timeline.end)
    assert timeline.bubble_fraction == pytest.approx(1 - sum(work) / (last_end * order.ranks))
    for start, end in zip(timeline.start, timeline.end, strict=True):
        assert (start[1:] >= end[:-1]).all()


@QUICK
@given(seed=SEEDS, blocking=st.booleans(), more=st.floats(0, 3))
def test_raising_any_time_never_lowers_the_makespan(seed: int, blocking: bool, more: float) -> None:
    order = random_order(seed)
    times = random_times(order, 2 * seed + 1)
    before = makespan(order, replace(times, blocking=blocking))
    for name in ("forward", "backward_input", "backward_weight", "backward", "p2p"):
        table = np.asarray(getattr(times, name))
        for cell in np.ndindex(table.shape):
            raised = table.copy()
            raised[cell] += more
            assert makespan(order, replace(times, **{name: raised}, blocking=blocking)) >= before


@QUICK
@given(seed=SEEDS, factor=st.floats(0.01, 100))
def test_scaling_all_times_scales_the_timeline(seed: int, factor: float) -> None:
    order = random_order(seed)
    times = random_times(order, 2 * seed + 1)
    names = ("forward", "backward_input", "backward_weight", "backward", "p2p")
    scaled = ChunkTimes(**{name: factor * np.asarray(getattr(times, name)) for name in names})
    one, other = simulate(order, times), simulate(order, scaled)
    assert other.makespan == pytest.approx(factor * one.makespan)
    assert other.span == pytest.approx(factor * one.span)
    assert other.bubble_fraction == pytest.approx(one.bubble_fraction, abs=1e-9)
    assert other.peak_chunks() == one.peak_chunks()


@QUICK
@given(seed=SEEDS)
def test_blocking_sends_never_finish_sooner_and_are_free_if_transfers_are(seed: int) -> None:
    order = random_order(seed)
    times = random_times(order, seed)
    assert makespan(order, replace(times, blocking=True)) >= makespan(order, times) - 1e-9
    free = replace(times, p2p=0.0)
    assert makespan(order, replace(free, blocking=True)) == makespan(order, free)


def test_activations_of_a_split_backward_live_until_w() -> None:
    row = tuple(Action(kind, microbatch, 0) for kind in ("F", "B", "W") for microbatch in range(3))
    order = Order.of((row,), microbatches=3, placement=loop(1, 1))
    timeline = simulate(order, ChunkTimes(forward=2, backward_input=1, backward_weight=1))
    assert timeline.peak_chunks() == (3,)
    early = tuple(Action(kind, microbatch, 0) for microbatch in range(3) for kind in ("F", "B", "W"))
    assert simulate(Order.of((early,), microbatches=3, placement=loop(1, 1)), random_times(order, 0)).peak_chunks() == (
        1,
    )


# A forward and a backward that run as one pair: they wait for both inputs, end together, and may overlap.

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
            found = makespan(order, replace(times, blocking=blocking))
            assert simulate(order, replace(times, blocking=blocking)).makespan == pytest.approx(found)
            together = replace(times, forward=np.full((2, 1, 1), f))
            assert makespans(order, replace(together, blocking=blocking)) == pytest.approx([found, found])
            assert found <= makespan(order, replace(times, overlap_gain=0.0, blocking=blocking)) + 1e-9


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


# What the engine refuses, and that it says where and why.


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
        ((F0, B0, BW0), "B of microbatch 0, chunk 0 is there in addition to the BW"),
        ((F0, B0, W0, BW0), "B of microbatch 0, chunk 0 is there in addition to the BW; rank 1: W of"),
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
