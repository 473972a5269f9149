"""Many engines under one load: the events between them by hand, and what holds of every load."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predict.serving.fleet import ROUTERS, TierSettings, Ways, ways_of
from predict.serving.kv_cache import BlockPool, kept_bytes
from predict.serving.simulate import serve
from predict.serving.traffic import Load, Prefix, traffic_of
from sampling.units import GIB, SECOND_US
from tests.predict.serving.servers import chained, engine, fleet, requests, server, unit_table


def test_requests_go_to_the_engines_in_turn() -> None:
    found = fleet(requests((0, 10, 1), (1, 20, 1), (2, 30, 1)), engines=2, router="round_robin")
    # the third waits for the first of the same engine, which takes 1 + 10 µs
    assert found.last_us.tolist() == [11, 1 + 21, 11 + 31]


def test_the_least_loaded_engine_is_chosen() -> None:
    found = fleet(requests((0, 30, 1), (1, 4, 1), (8, 4, 1)), engines=2)
    assert found.last_us.tolist() == [31, 1 + 5, 8 + 5]


def test_the_prefix_aware_router_sends_a_prompt_where_it_is_known() -> None:
    traffic = chained((0, 32, 1, (0,)), (40, 40, 1, (1,)), (90, 33, 1, (0,)), sizes=(32, 32))
    found = fleet(traffic, engines=2, router="prefix")
    assert found.last_us[2] == 90 + 1 + 1  # one token is not known
    assert found.found_tokens == 32


def test_a_prompt_that_is_known_whole_adds_nothing_to_its_engines_queue() -> None:
    # one request at a time. When the last comes, both engines hold three blocks: the first waits with a prompt that it knows, so that the
    # loads are equal, and the first of equal engines is chosen
    traffic = chained((0, 32, 14, (0,)), (1, 40, 8, ()), (35, 32, 1, (0,)), (36, 10, 1, ()), sizes=(32,))
    found = fleet(traffic, engines=2, router="prefix", max_num_seqs=1)
    assert found.start_us.tolist() == [0, 1, 46, 46 + 1 + 16]


def test_a_prompt_computed_apart_goes_on_once_its_keys_and_values_have_come() -> None:
    found = fleet(requests((0, 20, 3)), prefill=1)
    # 21 µs of prompt; 19 tokens at 0.5 µs and 2 µs more; the last token of the prompt and the others are decodes
    assert found.first_us.tolist() == [21 + 19 * 0.5 + 2 + 1]
    assert found.last_us.tolist() == [found.first_us[0] + 2]
    assert found.fleet is not None
    assert found.fleet.brought_tokens == {"prefill": 19}


def test_layers_sent_while_others_are_computed_leave_the_last_ones() -> None:
    ways = Ways(names=("prefill",), token_us=(0.5,), start_us=(2.0,), capacity=(0,), overlap=0.75)
    found = fleet(requests((0, 21, 3)), prefill=1, ways=ways)
    assert found.first_us.tolist() == [22 + 20 * 0.5 * 0.25 + 2 + 1]


def test_blocks_of_a_sent_prompt_are_free_once_it_has_arrived() -> None:
    # 2 blocks for prompts: the second waits until the first was sent, which ends at 33 + 31 · 0.5
    found = fleet(requests((0, 32, 2), (0, 32, 2)), prefill=1, blocks=3, max_num_batched_tokens=512)
    assert found.start_us.tolist() == [0, 33 + 31 * 0.5]


def test_what_was_evicted_comes_back_from_the_host() -> None:
    host = Ways(names=("prefill", "host"), token_us=(0.0, 0.25), start_us=(0.0, 0.0), capacity=(0, 8), overlap=0.0)
    # the second takes all blocks; of the first prompt's two, that of the last token is computed anyway
    traffic = chained((0, 33, 1, (0,)), (100, 60, 1, ()), (200, 33, 1, (0,)), sizes=(32,))
    there, lost = fleet(traffic, blocks=4, ways=host), fleet(traffic, blocks=4)
    assert lost.last_us[2] == 200 + 34
    assert there.last_us[2] == 200 + 32 * 0.25 + 2
    assert there.fleet is not None
    assert there.fleet.brought_tokens["host"] == 32


def test_a_prompt_that_comes_back_has_a_step_of_its_own_where_the_engine_does_not_mix() -> None:
    host = Ways(names=("prefill", "host"), token_us=(0.0, 0.25), start_us=(0.0, 0.0), capacity=(0, 8), overlap=0.0)
    # the last one's keys and values come at 218, beside decodes of the one before it
    traffic = chained((0, 33, 1, (0,)), (100, 92, 1, ()), (195, 4, 40, ()), (210, 33, 1, (0,)), sizes=(32,))
    mixed, alone = (fleet(traffic, blocks=6, ways=host, prompts_alone=each) for each in (False, True))
    assert mixed.last_us[2:].tolist() == [240, 220]
    assert alone.last_us[2:].tolist() == [241, 220]


def test_of_what_comes_back_the_block_of_the_last_token_is_computed_anew() -> None:
    host = Ways(names=("prefill", "host"), token_us=(0.0, 0.25), start_us=(0.0, 0.0), capacity=(0, 8), overlap=0.0)
    found = fleet(chained((0, 32, 1, (0,)), (100, 60, 1, ()), (200, 32, 1, (0,)), sizes=(32,)), blocks=4, ways=host)
    assert found.last_us[2] == 200 + 16 * 0.25 + 17


def test_a_turn_follows_on_the_answer_before_it_and_finds_all_that_was_said() -> None:
    load = Load(rate=1.0, duration_s=2, prompt=20, output=4, prefix=Prefix(turns=2, pause_s=0.0))
    traffic = traffic_of(load)
    assert traffic.prompt.tolist() == [20, 44]
    found = fleet(traffic, blocks=20)
    assert found.traffic.arrival_us[1] == found.last_us[0]
    assert found.found_tokens == 16  # of 20 + 4 tokens, whole blocks, and the last answer's token was not computed


def test_conversations_share_their_beginnings() -> None:
    load = Load(rate=10.0, duration_s=4, prompt=20, output=4, prefix=Prefix(groups=2, shared=64))
    traffic = traffic_of(load)
    found = serve(engine(), BlockPool(blocks=60), unit_table(), traffic)
    assert found.found_tokens == (40 - 2) * 64


def test_requests_of_a_failed_engine_are_sent_again() -> None:
    found = fleet(requests((0, 10, 40), (1, 10, 40)), engines=2, failures_s=(20 / SECOND_US,), start_s=0)
    assert found.fleet is not None
    assert (found.fleet.lost, found.fleet.started) == (1, 1)
    assert found.last_us[0] > found.last_us[1]


def test_an_autoscaler_starts_engines_for_bursts_lets_them_drain_and_takes_one_back() -> None:
    second = 1e6
    # a token a second; four run at once
    slow = replace(unit_table(), decode_us=np.full(9, second))
    bursts = [(0.0, 1, 8)] * 6, [(7 * second, 1, 5), (7 * second, 1, 40)], [(26 * second, 1, 8)] * 5
    found = fleet(
        requests(*chain(*bursts)), engines=3, replicas=1, most_replicas=3, target_requests=2.0, start_s=1, table=slow
    )
    assert found.fleet is not None
    # 5 s: six requests want three engines; 15 and 20 s: one wants one; 25 s: the second is idle and off; 30 s: six again, the third still
    # drains and serves on, the second starts
    assert (found.fleet.started, found.fleet.most_up) == (3, 3)
    assert found.fleet.up_s == pytest.approx(46 + (25 - 5) + (46 - 30) + (46 - 5), rel=1e-6)
    # an engine that drains is given none of the last burst: four run at once on the first, then the fifth
    assert found.last_us[-5:] / second == pytest.approx([33, 33, 33, 33, 40], rel=1e-6)


def test_each_gpu_of_a_pool_sends_its_own_share() -> None:
    wide, narrow = server(tp=4), server(tp=1)
    link = wide.cluster.inter_node
    alike, from_narrow = (ways_of(wide, each, TierSettings(), False, link).token_us[0] for each in (wide, narrow))
    assert from_narrow == pytest.approx(4 * alike)
    assert alike == kept_bytes(wide).token / link.bytes_per_us()
    host = ways_of(wide, None, TierSettings(host_gib=10), False, link)
    assert host.capacity[1] == int(10 * GIB / (4 * kept_bytes(wide).token * wide.engine.block_size))


LOADS = st.lists(st.tuples(st.floats(0, 300), st.integers(1, 80), st.integers(1, 40)), min_size=1, max_size=15)


@settings(max_examples=40)
@given(
    each=LOADS,
    prefill=st.integers(0, 2),
    router=st.sampled_from(ROUTERS),
    asynchronous=st.booleans(),
    failures=st.lists(st.floats(0, 400), max_size=2),
    in_flight=st.sampled_from([0, 0, 3]),
    blocks=st.integers(8, 20),
)
def test_no_request_is_lost_and_tokens_are_conserved(
    each: list[tuple[float, int, int]],
    prefill: int,
    router: str,
    asynchronous: bool,
    failures: list[float],
    in_flight: int,
    blocks: int,
) -> None:
    each = [(0.0, *one[1:]) for one in each] if in_flight else sorted(each)
    traffic = requests(*each, in_flight=min(in_flight, len(each)))
    found = fleet(
        traffic,
        engines=2,
        prefill=prefill,
        blocks=blocks,
        router=router,
        asynchronous=asynchronous,
        failures_s=tuple(at / SECOND_US for at in failures),
        start_s=1e-5,
    )
    assert (found.last_us >= found.first_us).all()
    assert (found.first_us > found.traffic.arrival_us).all()
    assert found.fleet is not None
    if not found.preemptions and not failures:
        assert found.chunk_tokens + found.found_tokens == pytest.approx(
            traffic.prompt.sum(), abs=len(each) * (prefill > 0)
        )
    if prefill and not failures and not found.preemptions:
        assert found.fleet.brought_tokens["prefill"] == (traffic.prompt - 1).sum()


@settings(max_examples=30)
@given(each=LOADS, asynchronous=st.booleans(), blocks=st.integers(8, 20))
def test_a_fleet_of_one_is_the_engine_alone(
    each: list[tuple[float, int, int]], asynchronous: bool, blocks: int
) -> None:
    traffic = requests(*sorted(each))
    alone = serve(engine(asynchronous=asynchronous), BlockPool(blocks=blocks), unit_table(), traffic)
    found = fleet(traffic, blocks=blocks, asynchronous=asynchronous)
    np.testing.assert_allclose(found.last_us, alone.last_us)
    assert found.steps == alone.steps


@settings(max_examples=30)
@given(seed=st.integers(0, 99), blocks=st.integers(12, 40), more=st.integers(1, 40))
def test_prompts_are_found_no_less_in_a_larger_cache(seed: int, blocks: int, more: int) -> None:
    """Of requests that do not meet: then what is kept longest in one cache is kept in a larger one too."""
    draw = np.random.default_rng(seed)
    each = [(1e4 * place, 160, 1, (int(draw.integers(6)),)) for place in range(40)]
    traffic = chained(*each, sizes=(160,) * 6)
    small, large = (fleet(traffic, blocks=count, max_num_batched_tokens=512) for count in (blocks, blocks + more))
    assert large.found_tokens >= small.found_tokens
    host = Ways(names=("prefill", "host"), token_us=(0.0, 0.1), start_us=(0.0, 0.0), capacity=(0, more), overlap=0.0)
    behind = fleet(traffic, blocks=blocks, ways=host, max_num_batched_tokens=512)
    assert behind.fleet is not None
    assert behind.found_tokens + behind.fleet.brought_tokens["host"] >= small.found_tokens
