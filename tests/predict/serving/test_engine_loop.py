"""The engine's loop against traces worked out by hand, and what holds of every trace."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predict.serving.kv_cache import BlockPool
from predict.serving.simulate import Served, saturated_per_s, serve
from predict.serving.traffic import Load
from sampling.errors import InfeasibleError, UserError
from tests.predict.serving.servers import engine, requests, unit_table

CHUNKS, TOKENS, DECODES, RUNNING, BLOCKS = range(2, 7)


def steps(served: Served, *columns: int) -> list[tuple[int, ...]]:
    return [tuple(int(row[column]) for column in columns) for row in served.trace]


def served(*each: tuple[float, int, int], blocks: int = 100, shared: int = 0, **changes: Any) -> Served:
    in_flight = changes.pop("in_flight", 0)
    traffic = requests(*each, shared=shared, in_flight=in_flight)
    return serve(engine(**changes), BlockPool(blocks=blocks), unit_table(), traffic, traced=50)


def test_token_budget() -> None:
    # 100 tokens of prompt: 64, then 36 beside the first 28 of the next; decodes come first in each step
    found = served((0, 100, 2), (0, 60, 2))
    assert steps(found, CHUNKS, TOKENS, DECODES) == [(1, 64, 0), (2, 64, 0), (1, 32, 1), (0, 0, 1)]
    assert found.first_us.tolist() == [65 + 65, 65 + 65 + 33]
    assert found.last_us.tolist() == [163, 164]


def test_whole_prompts_wait_for_a_step_of_their_own() -> None:
    found = served((0, 40, 1), (0, 40, 1), chunked_prefill=False)
    assert steps(found, CHUNKS, TOKENS) == [(1, 40), (1, 40)]


@pytest.mark.parametrize("interval, start", [(1, 7), (5, 10)])
def test_new_requests_wait_for_the_next_look(interval: int, start: int) -> None:
    # the first prompt takes 5 µs, after which the engine looks; 5 decodes later it does so again
    found = served((0, 4, 12), (6.5, 4, 2), recv_interval=interval)
    assert found.start_us.tolist() == [0, start]


def test_prompts_alone_come_before_decodes() -> None:
    # the second prompt has two steps of its own, 64 and 36 tokens, in which the first request gets no token
    found = served((0, 4, 4), (5.5, 100, 2), prompts_alone=True)
    assert steps(found, CHUNKS, TOKENS, DECODES) == [(1, 4, 0), (0, 0, 1), (1, 64, 0), (1, 36, 0), (0, 0, 2), (0, 0, 1)]
    assert found.gaps.counts.sum() == 4
    full = served((0, 4, 4), (5.5, 4, 2), prompts_alone=True, max_num_seqs=1)
    assert steps(full, CHUNKS, DECODES) == [(1, 0), (0, 1), (0, 1), (0, 1), (1, 0), (0, 1)]


@pytest.mark.parametrize("others, start", [((), 11), (((7.5, 40, 1),), 8)])
def test_prompts_are_gathered_beside_decodes(others: tuple[tuple[float, int, int], ...], start: int) -> None:
    # the first prompt takes 5 µs; the second waits for 4 steps of 1 µs, or for 32 of the 64 tokens of a step
    found = served((0, 4, 12), (6.5, 4, 2), *others, batch_wait_steps=4, batch_wait_share=0.5)
    assert found.start_us.tolist()[1] == start
    assert served((0, 4, 1), (6.5, 4, 2), batch_wait_steps=4, batch_wait_share=0.5).start_us.tolist() == [0, 6.5]


@pytest.mark.parametrize("share, step", [(0.5, 28), (0.44, 24)])
def test_a_preempted_request_waits_by_what_it_computes_again(share: float, step: int) -> None:
    # 7 blocks: the last prompt ends at once, the third request is preempted at its 12th token and has room again at step 24, beside one decode:
    # 44 tokens, which wait for 4 steps where a step of 100 is to have 50
    each = (0, 4, 40), (0, 31, 24), (0, 31, 24), (0, 26, 1)
    changes = {"max_num_batched_tokens": 100, "batch_wait_steps": 4, "batch_wait_share": share}
    found = served(*each, blocks=7, prefix_caching=False, **changes)
    assert [place for place, row in enumerate(steps(found, CHUNKS)) if row[0]] == [0, step]


def test_places_are_filled_in_order_of_arrival() -> None:
    found = served((0, 4, 3), (0, 4, 1), (0, 4, 1), max_num_seqs=2)
    assert steps(found, CHUNKS, DECODES) == [(2, 0), (1, 1), (0, 1)]
    assert np.all(np.diff(found.start_us) >= 0)


def test_preemption_takes_the_last_and_computes_all_its_tokens_again() -> None:
    # 4 blocks of 16: two prompts of 31 take all; the first needs a third block for its second decode
    found = served((0, 31, 4), (0, 31, 4), blocks=4, prefix_caching=False)
    assert found.preemptions == 1
    # the first ends alone; then the prompt and the 2 tokens that the second had made are computed in one chunk
    assert steps(found, CHUNKS, TOKENS, DECODES) == [(2, 62, 0), (0, 0, 2), (0, 0, 1), (0, 0, 1), (1, 33, 0), (0, 0, 1)]


def test_a_preempted_request_finds_its_own_blocks_until_they_are_reused() -> None:
    # of its two blocks of 16 the first request takes one, the last; the other is found again
    found = served((0, 31, 4), (0, 31, 4), blocks=4)
    assert steps(found, CHUNKS, TOKENS, DECODES)[4] == (1, 33 - 16, 0)
    # with a block to spare nothing of it is lost but the tokens outside of whole blocks
    assert steps(served((0, 31, 4), (0, 31, 4), (0, 1, 1), blocks=5), TOKENS)[-2] == (1,)


@pytest.mark.parametrize(("prompt", "computed", "blocks"), [(48, 16, 3), (50, 2, 4), (49, 1, 4)])
def test_a_known_prompt_computes_what_is_not_in_whole_blocks_and_its_last_token(
    prompt: int, computed: int, blocks: int
) -> None:
    found = served((0, prompt, 1), (1000, prompt, 1), shared=prompt)
    # the second holds the three blocks that are known in full, and one of its own
    assert steps(found, TOKENS, BLOCKS) == [(prompt, blocks), (computed, 3 + 1)]


def test_blocks_of_states_are_held_while_a_request_runs() -> None:
    # 8 blocks; each request takes 1 for its tokens and 3 for its states
    pool, traffic = BlockPool(blocks=8, state_blocks=2.5), requests(*[(0, 4, 2)] * 3)
    found = serve(engine(), pool, unit_table(), traffic, traced=9)
    assert steps(found, CHUNKS, DECODES, BLOCKS) == [(2, 0, 8), (0, 2, 8), (1, 0, 4), (0, 1, 4)]


def test_shared_blocks_are_held_once_and_forgotten_once_reused() -> None:
    both = served((0, 48, 9), (50, 48, 9), shared=48)
    # the second computes the last token of the prompt again, in a block of its own
    assert max(row[0] for row in steps(both, BLOCKS)) == 3 + 1 + 2
    # 4 blocks: a request with a prompt of its own takes the three that the first left
    traffic = requests((0, 48, 1), (1000, 60, 1), (2000, 48, 1))
    traffic.shared[[0, 2]] = 48
    traffic.group[[0, 2]] = 0
    found = serve(engine(), BlockPool(blocks=4), unit_table(), traffic, traced=9)
    assert steps(found, TOKENS) == [(48,), (60,), (48,)]


def test_an_asynchronous_engine_admits_a_step_later() -> None:
    each = ((0, 4, 9), (5.5, 4, 2))
    # steps start at 0, 5, 6, 7 …: what arrives at 5.5 joins at 6, or at 7 where 6 was planned at 5
    assert served(*each).start_us[1] == 6
    assert served(*each, asynchronous=True).start_us[1] == 7


def test_a_closed_loop_keeps_its_requests_in_flight() -> None:
    found = served(*[(0.0, 4, 3)] * 12, in_flight=3)
    assert {row[0] for row in steps(found, RUNNING)} == {3}
    assert sorted(found.traffic.arrival_us[3:]) == sorted(found.last_us)[:9]


@pytest.mark.parametrize(
    ("settings_of", "blocks", "fault"),
    [({}, 2, "3 blocks"), ({"chunked_prefill": False, "max_num_batched_tokens": 16}, 9, "chunked_prefill")],
)
def test_a_request_that_can_never_run_is_refused(settings_of: dict[str, Any], blocks: int, fault: str) -> None:
    with pytest.raises(InfeasibleError, match=fault):
        served((0, 40, 4), blocks=blocks, **settings_of)


def test_the_longest_prompt_and_the_longest_answer_of_different_requests_are_not_added() -> None:
    found = served((0, 40, 1), (0, 4, 30), chunked_prefill=False, max_num_batched_tokens=50)
    assert (found.last_us > 0).all()


def test_lengths_below_1_are_refused() -> None:
    with pytest.raises(UserError, match="prompt: request 1 has -3 tokens"):
        requests((0, 4, 1), (0, -3, 1))


def test_the_rate_of_a_full_engine_is_that_of_its_whole_rounds() -> None:
    # of 8 places 16 requests are in flight; six rounds of 8 end, of which the first and the last do not count
    pace_us = np.full(72, 50.0)
    pace_us[16 + 8 - 4 : 16 + 40 + 4] = 10.0
    # a late end is felt by the quarter of the eight neighbouring ends that it delays
    pace_us[26] = 50.0
    ended = cast(Served, SimpleNamespace(last_us=np.cumsum(pace_us)[::-1]))
    load = Load(rate=1.0, duration_s=2, prompt=20, output=4)
    assert saturated_per_s(lambda traffic: ended, 8, load) == pytest.approx(1e6 * 32 / (320 + 40 - 40 / 4))


LOADS = st.lists(st.tuples(st.floats(0, 300), st.integers(1, 80), st.integers(1, 40)), min_size=1, max_size=25)


@settings(max_examples=60)
@given(
    each=LOADS,
    blocks=st.integers(8, 20),
    shared=st.sampled_from([0, 33]),
    asynchronous=st.booleans(),
    caching=st.booleans(),
    waits=st.sampled_from([0, 3]),
)
def test_what_holds_of_every_trace(
    each: list[tuple[float, int, int]], blocks: int, shared: int, asynchronous: bool, caching: bool, waits: int
) -> None:
    ordered = sorted((arrival, max(prompt, shared), output) for arrival, prompt, output in each)
    traffic = requests(*ordered, shared=shared)
    settings_of = engine(
        asynchronous=asynchronous, prefix_caching=caching, batch_wait_steps=waits, batch_wait_share=0.7
    )
    found = serve(settings_of, BlockPool(blocks=blocks), unit_table(), traffic, traced=5000)
    trace = found.trace
    assert (trace[:, TOKENS] + trace[:, DECODES] <= settings_of.max_num_batched_tokens).all()
    assert (trace[:, RUNNING] <= settings_of.max_num_seqs).all()
    assert (trace[:, BLOCKS] <= blocks).all()
    assert (traffic.arrival_us <= found.start_us).all()
    assert (found.start_us < found.first_us).all()
    assert (found.first_us <= found.last_us).all()
    assert (np.diff(found.start_us) >= 0).all()  # first come, first served
    # each request makes its output: one token by the end of a prompt, the others by decodes or after a preemption
    made = int(trace[:, DECODES].sum()) + len(traffic)
    assert made + found.preemptions >= int(traffic.output.sum()) >= made - found.preemptions
    if not caching and not found.preemptions:
        assert int(trace[:, TOKENS].sum()) == int(traffic.prompt.sum())
    # steps that repeat are played at once where no trace is asked for
    folded = serve(settings_of, BlockPool(blocks=blocks), unit_table(), traffic)
    np.testing.assert_allclose(folded.last_us, found.last_us)
    assert folded.steps == found.steps
