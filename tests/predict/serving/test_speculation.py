"""Speculative decoding: tokens are conserved, nothing accepted is never faster than no drafts, and more accepted is never slower."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import predict
from predict.plan_search.whole_search import RankedRows
from predict.serving import engine_loop, engine_state, simulate
from predict.serving.config import load_serving
from predict.serving.kv_cache import BlockPool, kept_bytes, weight_bytes
from predict.serving.simulate import serve
from predict.serving.speculation import RING, Speculation, accepted_tokens, from_log
from predict.serving.stepper import stepper
from tests.predict.serving.servers import CONFIG, SHORT, drafted, engine, requests

SPECULATED = ("speculation.kind=eagle", "speculation.tokens=3")


@given(
    tokens=st.integers(0, 6),
    acceptance=st.floats(0, 1),
    lengths=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 40)), min_size=1, max_size=12),
    blocks=st.integers(9, 40),
    asynchronous=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_every_request_gets_its_tokens_and_every_block_is_free_again(
    tokens: int, acceptance: float, lengths: list[tuple[int, int]], blocks: int, asynchronous: bool
) -> None:
    traffic = requests(*((float(place), *each) for place, each in enumerate(lengths)))
    served = serve(
        engine(asynchronous=asynchronous), BlockPool(blocks=blocks), drafted(tokens, acceptance), traffic, traced=10_000
    )
    assert (served.last_us >= served.first_us).all() and (served.first_us > traffic.arrival_us).all()
    # without preemptions each prompt is computed once, and a decode makes between one token and one and its drafts
    decodes = served.trace[:, 4].sum()
    made = sum(output - 1 for _, output in lengths)
    if not served.preemptions:
        assert served.chunk_tokens == sum(prompt for prompt, _ in lengths)
        assert made / (1 + tokens) <= decodes <= made
    assert served.most_blocks <= blocks


@given(tokens=st.integers(1, 8), shares=st.lists(st.floats(0, 1), min_size=8, max_size=8))
@settings(max_examples=50, deadline=None)
def test_drawn_tokens_have_the_mean_of_the_formula(tokens: int, shares: list[float]) -> None:
    falling = tuple(sorted(shares, reverse=True))
    speculation = Speculation(kind="eagle", tokens=tokens, by_position=falling)
    drawn = accepted_tokens(speculation)
    assert 1 + drawn.mean() == pytest.approx(speculation.tokens_per_step, abs=tokens / RING)
    assert drawn.max(initial=0) <= tokens


def test_tokens_per_step_is_the_geometric_sum() -> None:
    for acceptance in (0.0, 0.3, 0.8):
        found = Speculation(kind="mtp", tokens=4, acceptance=acceptance).tokens_per_step
        assert found == pytest.approx((1 - acceptance**5) / (1 - acceptance))
    assert Speculation(kind="mtp", tokens=0).tokens_per_step == Speculation().tokens_per_step == 1.0


@given(kind=st.sampled_from(("eagle", "ngram")), tokens=st.integers(1, 5), context=st.integers(1, 6_000))
@settings(max_examples=15, deadline=None)
def test_nothing_accepted_is_never_faster_and_more_accepted_never_slower(kind: str, tokens: int, context: int) -> None:
    def gains(acceptance: float) -> list[float]:
        keys = (f"speculation.kind={kind}", f"speculation.tokens={tokens}", f"speculation.acceptance={acceptance}")
        run = load_serving(CONFIG, [*keys, "engine.max_num_seqs=32"])
        return [each.median for each in stepper(run.server, "formula").paying(context).speedups]

    none, some, all_of_them = gains(0.0), gains(0.5), gains(1.0)
    assert max(none) <= 1.0
    assert all(low < middle < high for low, middle, high in zip(none, some, all_of_them, strict=True))


def test_the_loop_follows_the_acceptance() -> None:
    def tpot_us(*keys: str) -> float:
        answer = predict.serving_answer(CONFIG, [*SHORT, "load.rate=1", *keys], model="formula")
        return float(answer.outcomes[0].latency.tpot.mean_us)

    plain = tpot_us()
    times = [tpot_us(*SPECULATED, f"speculation.acceptance={each}") for each in (0.0, 0.4, 0.8)]
    assert times[0] > plain > times[2]
    assert times == sorted(times, reverse=True)


def test_drafts_take_cache_and_weights() -> None:
    plain = load_serving(CONFIG).server
    eagle = load_serving(CONFIG, SPECULATED).server
    own = load_serving(CONFIG, ["speculation.kind=draft", "speculation.draft=llama3-8b"]).server
    assert kept_bytes(eagle).token == pytest.approx(kept_bytes(plain).token * 33 / 32)
    assert kept_bytes(own).token == 2 * kept_bytes(plain).token
    assert weight_bytes(own) == 2 * weight_bytes(plain)
    # a layer, the product that joins three hidden states, the embedding and a head of 32,000 tokens
    assert 0.8e9 < weight_bytes(eagle) - weight_bytes(plain) < 1.2e9


def test_a_layer_of_multi_token_prediction_is_the_models_own() -> None:
    keys = ["model=deepseek-v3", "hardware=H200", "placement.tp=8", "placement.precision=fp8", "load.prompt=500"]
    plain = load_serving(CONFIG, keys).server
    mtp = load_serving(CONFIG, [*keys, "speculation.kind=mtp"]).server
    assert mtp.draft is not None and mtp.draft.model.layers == 1
    grown = weight_bytes(mtp) / weight_bytes(plain) - 1
    assert grown == pytest.approx(1 / 58, rel=0.15)  # one more sparse layer of 58, and a product in 16 bits before it
    gains = stepper(mtp).paying(1_000).speedups
    assert 1.3 < gains[0].median < 1.85


def test_a_log_gives_the_acceptance_by_position(tmp_path: Path) -> None:
    line = "INFO metrics.py:96] SpecDecoding metrics: Mean acceptance length: {}, Per-position acceptance rate: {}, Avg Draft acceptance rate: 50.0%\n"
    log = tmp_path / "engine.log"
    log.write_text(line.format("2.3", "0.800, 0.500") + "other\n" + line.format("2.1", "0.700, 0.400"))
    found = from_log(Speculation(kind="eagle", tokens=2, log="engine.log"), tmp_path)
    assert found.by_position == pytest.approx((0.75, 0.45))
    assert found.tokens_per_step == pytest.approx(2.2)


def test_requests_from_another_pool_that_join_a_full_mixed_step_have_a_time() -> None:
    # each takes one token of the step's, and counts as a decode with three drafts
    table = drafted(3, 0.5)
    sums = [0.0] * engine_state.SUMS
    sums[engine_state.CHUNKS], sums[engine_state.TOKENS], sums[engine_state.DECODES] = 1, 61, 3
    assert engine_loop.step_us(sums, simulate.table_of(table, lambda values: np.asarray(values).tolist())) == 1 + 61


def test_a_search_finds_the_number_of_drafts() -> None:
    found = predict.search(
        CONFIG,
        ["speculation.kind=eagle", "speculation.acceptance=0.8", "speculation.tokens=[0, 2]", *SHORT],
        objective="tpot",
        model="formula",
    )
    assert isinstance(found, RankedRows)
    assert found.best[0].settings["speculation.tokens"] == 2
