"""The host's launch floor of a layer: the run's setting, the sampled one of dense layers, and a mixture's own launches."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predict.prices.conditions import CONTENTION_SLOWDOWN
from predict.prices.open import SpeedOfLight
from predict.prices.price_list import Priced, PriceList
from predict.rank.blocks import OverlappedCommunication, single
from predict.rank.share import RankShare
from predict.run.training_run import TrainingRun
from predict.schedules.engine.costs import ChunkTimes
from predict.schedules.engine.timing import simulate
from predict.schedules.registry import order as order_of
from predict.step.interval import FLOOR, cases_of_block
from predict.step.priced_block import (
    Bucket,
    Contention,
    PricedBlock,
    PricedOverlap,
    _bounded,
    block_prices,
    contention_of,
    exposures_us,
    launched_us,
)
from predict.step.priced_rank import PricedRank, windows_of
from predict.workload.layer import layer_blocks
from regressors.bank.times import Times
from sampling.call import Phase
from sampling.collectives.kinds import AllGather, TokenExchange
from sampling.hardware.cluster import load_cluster
from tests.predict.workload.parallel_runs import estimated, made, step_us


def floor_of(time_us: float) -> Times:
    return Times(median_us=time_us, low_us=0.9 * time_us, high_us=1.2 * time_us, source="measured")


SAMPLED: Mapping[Phase, Times] = {"forward": floor_of(260.0), "backward": floor_of(700.0)}


def mixture_run(**settings: Any) -> TrainingRun:
    launches = {"execution__expert_launch_us": 3000, "execution__launch_floor_us": 250}
    return made("deepseek-v3", plan__dp=8, plan__ep=8, **(launches | settings))


def priced(run: TrainingRun, phase: str, *, sparse: bool, sampled: Mapping[Phase, Times] = SAMPLED) -> PricedBlock:
    rank = RankShare(run=run)
    kind = next(kind for kind in rank.model.kinds() if kind.sparse == sparse)
    prices = PriceList([SpeedOfLight()], run.cluster, profile_error=None, launch_floors=sampled)
    block = getattr(layer_blocks(rank, kind), phase)
    return block_prices(run, prices).bucket(single(block)).blocks[0].priced


def floor_us(block: PricedBlock) -> float:
    return block.floor.median_us if block.floor else 0.0


@pytest.mark.parametrize(
    ("phase", "stated_us", "sampled_us"),
    [("forward", 250 + 3000, 260 + 3000), ("again", 3250, 3260), ("backward", 250 + 6000, 700 + 6000)],
)
def test_a_sampled_floor_leaves_the_launches_of_a_mixture(phase: str, stated_us: float, sampled_us: float) -> None:
    run = mixture_run()
    assert floor_us(priced(run, phase, sparse=True, sampled={})) == stated_us
    found = priced(run, phase, sparse=True)
    assert floor_us(found) == sampled_us
    assert found.by_source_us.get("measured", 0.0) == 0.0


def test_a_dense_layers_sampled_floor_counts_as_measured() -> None:
    found = priced(
        mixture_run(execution__launch_floor_us=1e5), "forward", sparse=False, sampled={"forward": floor_of(1e5)}
    )
    assert floor_us(found) == 1e5
    assert found.by_source_us["measured"] > 0


def test_a_floor_is_as_uncertain_as_its_parts() -> None:
    run = mixture_run(execution__launch_floor_us=1e5, execution__expert_launch_us=1e5)
    bounds = [
        (block.floor.low_us / block.floor.median_us, block.floor.high_us / block.floor.median_us)
        for block in (
            priced(run, "forward", sparse=sparse, sampled=sampled)
            for sparse in (False, True)
            for sampled in ({}, {"forward": floor_of(1e5)})
        )
        if block.floor
    ]
    stated, sampled, mixture = (0.85, 1.15), (0.9, 1.2), (0.875, 1.175)
    assert bounds == [pytest.approx(each) for each in (stated, sampled, stated, mixture)]
    alone = priced(run, "forward", sparse=False, sampled={"forward": floor_of(1e5)})
    spread = cases_of_block(alone)
    at = 1 + spread.kinds.index(FLOOR)
    assert spread.values[at] / spread.values[0] == pytest.approx(1.2, rel=0.01)
    assert spread.values[at + len(spread.kinds)] / spread.values[0] == pytest.approx(0.9, rel=0.01)


@pytest.mark.parametrize("sampled", [{}, SAMPLED], ids=["stated", "sampled"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "mixture"])
def test_the_halves_of_a_split_backward_share_its_floor(sparse: bool, sampled: Mapping[Phase, Times]) -> None:
    run = mixture_run()
    whole, *halves = (
        floor_us(priced(run, phase, sparse=sparse, sampled=sampled))
        for phase in ("backward", "backward_input", "backward_weight")
    )
    assert halves == [whole / 2, whole / 2]


def test_a_graph_of_the_whole_step_leaves_the_host_nothing() -> None:
    run = mixture_run(execution__cuda_graphs="full")
    assert floor_us(priced(run, "forward", sparse=True)) == 0.0


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_a_layer_takes_at_most_half_of_its_parts_more_or_less_than_they_do(glue: float, parts: float) -> None:
    assert _bounded(glue, parts) == float(np.clip(glue, -parts / 2, parts / 2))


# Communication beside compute: bounds of what hides, windows of the reduction, and what a whole step makes of it.

TIME = st.floats(0, 1e6)
SHARE = st.floats(0, 1)
IN_NODE, BETWEEN = 8, 1
"""Ranks on a node, of the 8 of a group."""


def overlap(ranks_per_node: int = IN_NODE, *, calls: int = 1, **given: Any) -> PricedOverlap:
    """Communication of a group of 8 behind `calls` calls, whose times the test states."""
    message = AllGather(size_bytes=1, ranks=8, ranks_per_node=ranks_per_node)
    unit = Priced(call=message, phase="forward", count=1.0, time=floor_of(1.0))
    slowdown, exposed_time = given.pop("contention_slowdown", CONTENTION_SLOWDOWN), given.pop("exposed_time", 1.0)
    return PricedOverlap(
        of=OverlappedCommunication(heading="tp", communication=(), **{"share": 1.0, **given}),
        communication=(unit,),
        work=(unit,) * calls,
        contention_slowdown=slowdown,
        exposed_time=exposed_time,
    )


def alone_us(communication_us: Any, work_us: Any, **given: Any) -> Any:
    """What communication adds to work that nothing else hides behind."""
    return exposures_us([overlap(**given)], [(communication_us, work_us)])[0]


@given(TIME, TIME, SHARE, SHARE, SHARE)
def test_no_more_hides_than_fits_beside_the_work(
    communication: float, work: float, share: float, most: float, slow_down: float
) -> None:
    exposed = alone_us(communication, work, share=share, most=most, contention_slowdown=slow_down)
    rounding = 1e-9 * (communication + work)
    assert exposed >= max(0.0, communication - work) - rounding
    assert exposed >= communication * (1 - most) - rounding
    assert communication - exposed <= min(communication, work) + rounding
    assert exposed <= communication + rounding


@given(st.lists(st.tuples(TIME, TIME), min_size=1, max_size=5), SHARE, SHARE)
def test_many_cases_are_each_exposed_as_one_is(cases: list[tuple[float, float]], share: float, most: float) -> None:
    communication, work = np.array(cases).T
    together = alone_us(communication, work, share=share, most=most)
    assert together == pytest.approx([alone_us(*case, share=share, most=most) for case in cases])


def test_what_is_hidden_still_costs_the_share_by_which_compute_slows_down() -> None:
    assert alone_us(100.0, 1000.0) == pytest.approx(100 * CONTENTION_SLOWDOWN)
    assert alone_us(100.0, 40.0, share=0.5) == pytest.approx(80 + 20 * CONTENTION_SLOWDOWN)
    assert alone_us(100.0, 1000.0, most=0.6) == pytest.approx(40 + 60 * CONTENTION_SLOWDOWN)
    assert alone_us(100.0, 1000.0, share=0.0) == 100


def test_communication_behind_the_same_work_shares_it() -> None:
    two = [overlap(shares_with=(1,)), overlap(shares_with=(0,))]
    first_us, second_us = exposures_us(two, [(60.0, 100.0), (60.0, 100.0)])
    assert first_us == pytest.approx(60 * CONTENTION_SLOWDOWN)
    assert second_us == pytest.approx(20 + 40 * CONTENTION_SLOWDOWN)


def test_half_of_the_work_hides_one_message_and_the_other_half_another() -> None:
    two = [overlap(share=0.5, shares_with=(1,)), overlap(share=0.5, shares_with=(0,))]
    assert exposures_us(two, [(80.0, 100.0), (50.0, 100.0)]) == pytest.approx(
        [30 + 50 * CONTENTION_SLOWDOWN, 50 * CONTENTION_SLOWDOWN]
    )


def test_what_was_begun_ahead_waits_for_messages_on_its_links_and_goes_on_beside_those_on_others() -> None:
    weights = overlap(calls=3, ahead=True, shares_with=(0,), contention_slowdown=0.0)
    times = [(60.0, 40.0), (200.0, 100.0)]
    exchange, beside = (
        exposures_us([overlap(ranks_per_node, contention_slowdown=0.0), weights], times) for ranks_per_node in (8, 1)
    )
    assert exchange == [20.0, 200.0 - (100.0 - 40.0)]
    assert beside == [20.0, 200.0 - (100.0 + 20.0)]


BLOCK = st.lists(st.tuples(TIME, SHARE, st.booleans()), max_size=3)


@given(BLOCK, TIME, TIME, TIME, SHARE, st.booleans())
def test_faster_work_never_lengthens_a_block(
    exchanges: list[tuple[float, float, bool]],
    weights_us: float,
    work_us: float,
    rest_us: float,
    faster: float,
    ahead: bool,
) -> None:
    others = tuple(range(len(exchanges)))
    overlapped = [
        overlap(BETWEEN if away else IN_NODE, share=share, shares_with=tuple({*others, len(others)} - {place}))
        for place, (_, share, away) in enumerate(exchanges)
    ]
    overlapped.append(overlap(BETWEEN, calls=9, ahead=ahead, shares_with=others))

    def block_us(own_us: float) -> float:
        times = [*((us, own_us) for us, _, _ in exchanges), (weights_us, own_us + rest_us)]
        return own_us + rest_us + sum(exposures_us(overlapped, times))

    assert block_us(work_us * faster) <= block_us(work_us) * (1 + 1e-9) + 1e-9


def _contention(sampled: float | None = None, network_share: float = 1.0) -> Contention:
    return Contention(sampled=sampled, of_sharding=0.6, of_exchange=0.15, gpus_per_node=8, network_share=network_share)


def test_sharded_weights_slow_compute_by_the_channels_that_their_groups_take() -> None:
    in_node = AllGather(size_bytes=2**20, ranks=8, ranks_per_node=8)
    whole_nodes, one_card = (AllGather(size_bytes=2**20, ranks=16, ranks_per_node=many) for many in (8, 1))
    assert _contention().slowdown("fsdp", [(in_node, 1.0)]) == pytest.approx(0.6)
    assert _contention().slowdown("fsdp", [(whole_nodes, 1.0)]) == pytest.approx(0.6)
    assert _contention().slowdown("fsdp", [(one_card, 1.0)]) == pytest.approx(0.6 / 8)
    assert _contention().slowdown("fsdp", [(in_node, 3.0), (one_card, 1.0)]) == pytest.approx(0.6 * (3 + 1 / 8) / 4)


def test_fewer_network_cards_take_fewer_channels_between_nodes_alone() -> None:
    in_node, across = (AllGather(size_bytes=2**20, ranks=ranks, ranks_per_node=8) for ranks in (8, 16))
    few = _contention(network_share=0.25)
    assert few.slowdown("fsdp", [(across, 1.0)]) == pytest.approx(0.6 / 4)
    assert few.slowdown("fsdp", [(in_node, 1.0)]) == pytest.approx(0.6)


def test_the_share_of_network_cards_is_that_of_the_usual_bandwidth_and_no_more_than_all() -> None:
    shape: dict[str, Any] = {"hardware": "h100-sxm", "nodes": 2, "gpus_per_node": 8, "profile": "none"}
    usual = load_cluster(**shape)
    assert usual.network_share == 1.0
    half = usual.inter_node.gb_per_s / 2
    assert load_cluster(**shape, inter_node_gb_per_s=half).network_share == pytest.approx(0.5)
    assert load_cluster(**shape, inter_node_gb_per_s=4 * half).network_share == 1.0


def test_samples_of_contention_come_before_its_priors() -> None:
    gather = [(AllGather(size_bytes=2**20, ranks=8, ranks_per_node=8), 1.0)]
    assert _contention().slowdown("tp", gather) == CONTENTION_SLOWDOWN
    assert _contention(0.3).slowdown("tp", gather) == _contention(0.3).slowdown("fsdp", gather) == 0.3


@pytest.mark.parametrize(
    ("hardware", "dispatch", "taken", "of"),
    [("h100-sxm", "deepep", 20, 132), ("b200", "deepep", 20, 148), ("b200", "hybridep", 16, 148)],
)
def test_a_hidden_exchange_of_tokens_takes_the_multiprocessors_of_its_kernels(
    hardware: str, dispatch: str, taken: int, of: int
) -> None:
    cluster = load_cluster(hardware=hardware, nodes=1, gpus_per_node=8, profile="none")
    run = made("qwen3-30b-a3b", plan__dp=8, plan__ep=8, execution__dispatch=dispatch)
    exchange = TokenExchange(size_bytes=2**20, away_bytes=0, ranks=8, ranks_per_node=8)
    found = contention_of(replace(run, cluster=cluster), sampled=0.3)
    assert found.slowdown("ep", [(exchange, 1.0)]) == pytest.approx(taken / of)
    gather = AllGather(size_bytes=2**20, ranks=8, ranks_per_node=8)
    assert found.slowdown("ep", [(exchange, 1.0), (gather, 1.0)]) == pytest.approx((taken / of + 0.3) / 2)


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6))
def test_kernels_and_their_launches_take_the_longer_of_the_two_and_little_more(busy: float, floor: float) -> None:
    longer = launched_us(busy, floor)
    assert max(busy, floor) * (1 - 1e-9) <= longer <= max(busy, floor) * 2**0.25 * (1 + 1e-9)


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6))
def test_a_host_that_waits_for_each_kernel_adds_its_time_to_theirs(busy: float, floor: float) -> None:
    assert launched_us(busy, floor, synchronous=True) == busy + floor


# the reduction and its windows


def _rank(windows: tuple[tuple[float, float], ...], share: float = 1.0) -> PricedRank:
    return PricedRank(
        chunks=(),
        blocking_reduction=Bucket(),
        gradient_reduction=Bucket(),
        parameter_all_gather=Bucket(),
        reduction_share=share,
        all_gather_share=0.0,
        optimizer=Bucket(),
        contention_slowdown=CONTENTION_SLOWDOWN,
        windows=windows,
    )


def _hidden(reduction: float, *windows: tuple[float, float], share: float = 1.0) -> float:
    return (reduction - _rank(windows, share).exposed_reduction_of(reduction)) / (1 - CONTENTION_SLOWDOWN)


def test_a_reduction_hides_behind_its_window() -> None:
    assert _hidden(50.0, (1.0, 100.0)) == pytest.approx(50)
    assert _hidden(150.0, (1.0, 100.0)) == pytest.approx(100)
    assert _hidden(150.0, (1.0, 100.0), share=0.0) == 0


def test_gradients_that_are_ready_late_have_the_last_window_alone() -> None:
    # half of them at 100 before the end, the others at 20
    assert _hidden(40.0, (1.0, 100.0), (0.5, 20.0)) == pytest.approx(40)
    assert _hidden(80.0, (1.0, 100.0), (0.5, 20.0)) == pytest.approx(80 - (40 - 20))
    assert _hidden(300.0, (1.0, 100.0), (0.5, 20.0)) == pytest.approx(100)


@given(st.floats(0, 1e4), st.lists(st.tuples(SHARE, st.floats(0, 1e4)), max_size=4), st.floats(0, 1e4))
def test_windows_bound_what_hides(reduction: float, others: list[tuple[float, float]], window: float) -> None:
    hidden = _hidden(reduction, (1.0, window), *others)
    assert -1e-6 <= hidden <= min(reduction, window) + 1e-6


def test_the_windows_of_interleaved_chunks_follow_from_their_last_backwards() -> None:
    order = order_of("interleaved-1f1b", ranks=2, chunks=2, microbatches=4, times=_unit(2, 2), memory_limit=None)
    timeline = simulate(order, _unit(2, 2))
    for (whole, first), (half, second) in windows_of(timeline):
        assert (whole, half) == (1.0, 0.5)
        # the last backward of all is of one chunk, and that of the other came before
        assert first > second == 2
    plain = order_of("1f1b", ranks=2, chunks=1, microbatches=4, times=_unit(2, 1), memory_limit=None)
    assert windows_of(simulate(plain, _unit(2, 1))) == (((1.0, 2.0),), ((1.0, 2.0),))


def _unit(ranks: int, chunks: int) -> ChunkTimes:
    one = np.ones((ranks, chunks))
    return ChunkTimes(
        forward=one, backward_input=one, backward_weight=one, backward=2 * one, p2p=np.zeros(ranks * chunks - 1)
    )


def test_more_chunks_leave_the_reduction_more_time() -> None:
    def exposed(**plan: Any) -> float:
        slow = {"hardware": "h100-sxm", "profile": "nowhere", "inter_node_gb_per_s": 30}
        run = made("llama3-70b", 16, cluster=slow, plan__pp=4, plan__dp=16, batch__global=128, **plan)
        return estimated(run).breakdown_us["dp_exposed"]

    interleaved = exposed(plan__vpp=4, plan__schedule="interleaved-1f1b")
    assert 0 < interleaved < exposed()


# whole steps

OVERLAPS: list[tuple[str, dict[str, Any], str, Any, Any]] = [
    ("llama3-70b", {"plan__dp": 8}, "overlap_gradients", False, True),
    ("llama3-70b", {"plan__dp": 8, "plan__pp": 2}, "overlap_gradients", False, True),
    ("llama3-70b", {"plan__dp": 8, "plan__zero": 1}, "overlap_gradients", False, True),
    ("llama3-70b", {"plan__dp": 8, "plan__zero": 1}, "overlap_parameters", False, True),
    ("llama3-70b", {"plan__tp": 8}, "overlap_tp", "none", "backward"),
    ("llama3-70b", {"plan__tp": 8, "plan__sp": True}, "overlap_tp", "none", "backward"),
    ("llama3-70b", {"plan__tp": 8, "plan__sp": True}, "overlap_tp", "none", "pipelined"),
    ("llama3-70b", {"plan__pp": 4, "plan__tp": 2}, "overlap_p2p", False, True),
    ("qwen3-30b-a3b", {"plan__dp": 8, "plan__ep": 8}, "overlap_ep", "none", "microbatch"),
    ("deepseek-v3", {"plan__dp": 8, "plan__ep": 8}, "overlap_ep", "none", "shared_expert"),
    ("deepseek-v3", {"plan__dp": 8, "plan__ep": 8}, "overlap_ep", "none", "microbatch"),
]


def test_the_first_forward_and_the_last_backward_have_no_microbatch_that_hides_their_exchange() -> None:
    def saved_us(microbatches: int) -> float:
        settings: dict[str, Any] = {"plan__dp": 8, "plan__ep": 8, "batch__global": 8 * microbatches}
        alone, beside = (
            estimated(made("qwen3-30b-a3b", 8, **settings, execution__overlap_ep=each)).step_time.median_us
            for each in ("none", "microbatch")
        )
        return alone - beside

    assert saved_us(1) == pytest.approx(0, abs=1e-6)
    assert saved_us(2) > 0
    # with the longer last backward, more of the gradients' reduction is hidden
    assert saved_us(5) == pytest.approx(4 * saved_us(2), rel=0.1)


@pytest.mark.parametrize(
    ("microbatches", "pp", "schedule", "vpp", "share"),
    [
        (5, 1, "1f1b", 1, 1 / 5),
        (16, 4, "1f1b", 1, 4 / 19),
        (16, 4, "interleaved-1f1b", 2, 8 / 35),
        (2, 4, "1f1b", 1, 4 / 5),
        (1, 4, "interleaved-1f1b", 2, 1),
        (16, 4, "afab", 1, 1),
        (16, 4, "looped-bfs", 2, 1),
    ],
)
def test_a_pipeline_fills_and_drains_without_pairs(
    microbatches: int, pp: int, schedule: str, vpp: int, share: float
) -> None:
    run = made(plan__pp=pp, plan__vpp=vpp, plan__schedule=schedule, batch__global=microbatches)
    assert run.lone_share == pytest.approx(share)


@pytest.mark.parametrize("pp", [1, 4])
def test_a_step_of_more_microbatches_is_longer_where_they_hide_each_others_exchange(pp: int) -> None:
    def step_us(microbatches: int) -> float:
        settings: dict[str, Any] = {"plan__pp": pp, "plan__dp": 4, "plan__ep": 4, "batch__global": 4 * microbatches}
        run = made("qwen3-30b-a3b", 4 * pp, **settings, execution__overlap_ep="microbatch")
        return estimated(run).step_time.median_us

    times = [step_us(microbatches) for microbatches in range(1, 10)]
    assert times == sorted(times)


@pytest.mark.parametrize("schedule", ["afab", "looped-bfs"])
def test_nothing_is_hidden_where_all_forwards_come_first(schedule: str) -> None:
    settings: dict[str, Any] = {"plan__pp": 2, "plan__dp": 4, "plan__ep": 4, "batch__global": 32}
    exposed, beside = (
        estimated(made("qwen3-30b-a3b", 8, **settings, plan__schedule=schedule, execution__overlap_ep=each))
        for each in ("none", "microbatch")
    )
    assert beside.step_time == exposed.step_time


def test_passes_without_a_backward_hide_no_exchange() -> None:
    def passes(overlap: str, **tuning: Any) -> float:
        settings: dict[str, Any] = {"plan__dp": 4, "plan__ep": 4, "batch__global": 32, "execution__overlap_ep": overlap}
        (rank,) = estimated(made("qwen3-30b-a3b", 4, **settings, **tuning)).ranks
        return rank.forward_us

    of_reference = [passes(overlap, tuning__task="dpo") - passes(overlap) for overlap in ("none", "microbatch")]
    assert of_reference[0] == pytest.approx(of_reference[1])


@pytest.mark.parametrize(("model", "settings", "key", "off", "on"), OVERLAPS, ids=str)
def test_overlap_is_faster_and_saves_no_more_than_the_communication(
    model: str, settings: dict[str, Any], key: str, off: Any, on: Any
) -> None:
    without, with_overlap = (
        estimated(made(model, 8, **settings, **{f"execution__{key}": value})) for value in (off, on)
    )
    saved = without.step_time.median_us - with_overlap.step_time.median_us
    communication = sum(without.breakdown_us.get(name, 0.0) for name in ("tp", "ep", "dp_exposed", "p2p", "pp_bubble"))
    assert 0 < saved <= communication * 1.1


def test_fsdp_prefetches_the_weights_behind_the_layers() -> None:
    """What a layer gathers hides behind a layer, so that FSDP costs its slow-down while compute is the longer."""
    contention = {"execution__sharding_contention": 0.1}
    fsdp = estimated(made("llama3-70b", 8, plan__dp=8, plan__zero=3, batch__micro=2, **contention))
    sharded = estimated(made("llama3-70b", 8, plan__dp=8, plan__zero=1, batch__micro=2))
    moved = fsdp.breakdown_us["fsdp"]
    compute = sum(fsdp.breakdown_us[name] for name in ("gemm", "attention"))
    assert 0 < moved < 0.1 * compute
    assert fsdp.step_time.median_us == pytest.approx(sharded.step_time.median_us, rel=0.1)


def test_fsdp_over_a_slow_network_is_exposed() -> None:
    settings: dict[str, Any] = {"plan__dp": 16, "plan__zero": 3}
    fast = made("llama3-70b", 4, **settings)
    slow = made("llama3-70b", 4, **settings, cluster__inter_node_gb_per_s=1)
    exposed = estimated(slow).breakdown_us["fsdp"]
    weights = 3 * 4 * 855_654_400 * 2  # two gatherings of two bytes and a scattering of four are at least six
    assert exposed > 2 * estimated(fast).breakdown_us["fsdp"]
    # each byte passes one of eight cards of a node
    assert exposed > 0.5 * weights / 8 / 1e3


def test_a_stage_that_waits_for_its_sends_is_slower_the_slower_the_network() -> None:
    def lost(gb_per_s: float) -> float:
        run = made("llama3-70b", 8, plan__pp=2, plan__tp=8, plan__sp=True, cluster__inter_node_gb_per_s=gb_per_s)
        waiting = replace(run, execution=replace(run.execution, overlap_p2p=False))
        return step_us(waiting) - step_us(run)

    assert 0 < lost(50) < lost(5)
    assert math.isfinite(lost(0.5))
