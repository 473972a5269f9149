"""Models of a step: the published formula by hand, its mended faults, and what holds of all of them."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from predict.prices.kernels.memory_bound import memory_bound_us
from predict.prices.open import open_prices
from predict.serving import formula as mended
from predict.serving import formula as published
from predict.serving.batch import Chunk, Seen, StepBatch, computed_tokens, sums_of
from predict.serving.coefficients import shipped_coefficients
from predict.serving.config import load_serving
from predict.serving.kernels import (
    GROUPS,
    LONG_PROMPT,
    OF_PROMPTS,
    kernel_features,
    prefill_attention,
    prices_of,
    requests_of_server,
    step_kernels,
    token_kernels,
)
from predict.serving.kv_cache import kept_bytes, weight_bytes
from predict.serving.server import Server
from predict.serving.step_model import MODELS, sums
from predict.serving.stepper import stepper
from sampling.arithmetic.operator import BY_ANALOGY
from sampling.collectives.kinds import AllGather, ReduceScatter
from sampling.errors import UserError
from sampling.files.places import CONFIGS
from sampling.hardware.cluster import load_cluster
from sampling.operators.attention import DecodeAttention
from sampling.operators.experts import GroupedGemm
from sampling.operators.indexer import Indexer
from sampling.operators.vocabulary import RankedLogits
from tests.predict.serving.servers import CONFIG, engine, server

ONE = StepBatch(chunks=(Chunk(tokens=512),), decodes=(700, 900))
MODEL_NAMES = tuple(MODELS)


def test_the_published_formula_by_hand() -> None:
    # Llama-3-8B: d 4096, d_kv 1024, d_ff 14336, 32 layers, on 989e6 FLOP/µs and 3.352e6 bytes/µs
    compute, decode, memory, layers, requests = published.published_features_us(server(), sums_of([ONE], Seen()))[0]
    projections, mlp = 4096 * (2 * 4096 + 2 * 1024), 3 * 4096 * 14336
    pairs = 512 * (512 + 256)
    assert compute == pytest.approx(32 * (2 * 512 * (projections + mlp) + 4 * 4096 * pairs) / 989e6)
    assert decode == pytest.approx(32 * (2 * 2 * (projections + mlp) + 4 * 4096 * 1600) / 989e6)
    cache = 2 * 1024 * 2 * (514 + 1600)
    assert memory == pytest.approx(32 * (2 * (projections + mlp) + cache) / 3.352e6)
    assert (layers, requests) == (32, 3)


def test_the_mended_formula_counts_pairs_by_place() -> None:
    whole = mended.features_us(server(), sums_of([StepBatch(chunks=(Chunk(tokens=512),))], Seen()))[0]
    parts = [StepBatch(chunks=(Chunk(tokens=256, context=place, prompt=512),)) for place in (0, 256)]
    assert mended.features_us(server(), sums_of(parts, Seen()))[:, 0].sum() == pytest.approx(whole[0])
    assert published.published_features_us(server(), sums_of(parts, Seen()))[:, 0].sum() > 1.01 * whole[0]


@pytest.mark.parametrize(
    "requests, vocab, ms, off",
    [
        (1, 32768, 0.094, 0.63),
        (64, 32768, 0.37, 0.2),
        (128, 32768, 0.63, 0.2),
        (512, 32768, 1.69, 0.2),
        (64, 131072, 1.13, 0.2),
    ],
)
def test_sorting_logits_takes_what_vllm_publishes(requests: int, vocab: int, ms: float, off: float) -> None:
    """`apply_top_k_top_p_pytorch` in vLLM's pull requests 33538, 40376 and 51507, on GPUs that none of them names."""
    gpu = server().cluster.gpu
    us, log_width = memory_bound_us(RankedLogits(dtype="fp32", requests=requests, vocab=vocab), "forward", gpu)
    assert us == pytest.approx(1e3 * ms, rel=off)
    assert log_width == BY_ANALOGY


def test_the_choice_of_a_token_grows_with_requests_and_vocabulary() -> None:
    """By 42 bytes for each logit of a draw, and 202 where all are sorted: 128,256 of Llama 3 and a quarter as many."""

    def step_us(sampling: str, decodes: int, vocab: int = 128_256) -> float:
        one = server(settings=engine(max_num_seqs=128, max_num_batched_tokens=2048, sampling=sampling))
        features = kernel_features(replace(one, model=replace(one.model, vocab=vocab)))
        return float(features(sums_of([StepBatch(decodes=(64,) * decodes)], Seen()))[0].sum())

    def more_us(sampling: str, *sizes: int) -> float:
        return step_us(sampling, *sizes) - step_us("greedy", *sizes)

    assert 0 < more_us("random", 64) < 0.3 * more_us("sorted", 64)
    assert 0 < more_us("sorted", 16, 32_064) < more_us("sorted", 64, 32_064) < 0.4 * more_us("sorted", 64)
    assert more_us("sorted", 64) == pytest.approx(1_130, rel=0.25)


@pytest.mark.parametrize("tokens, least, most", [(16, 1.0, 1.0), (4096, 1.04, 1.2)])
def test_products_that_compute_binds_run_at_the_clocks_of_a_long_run(tokens: int, least: float, most: float) -> None:
    """Prompts draw all the power that the device may, decodes do not: products of few tokens keep the clocks of a short measurement."""
    one = server(settings=engine(max_num_seqs=128, max_num_batched_tokens=8192))
    calls = token_kernels(one, tokens)["gemm"]
    burst_us = sum(priced.total_us for priced in prices_of(one).priced(calls))
    features = kernel_features(one)
    found_us = float(features.by_tokens[features.sizes == tokens, GROUPS.index("gemm")][0])
    assert least <= found_us / burst_us <= most


def test_drafts_are_the_largest_logits() -> None:
    run = load_serving(CONFIG, ["speculation.kind=eagle", "speculation.tokens=2", "engine.sampling=sorted"])
    assert run.server.drafting is not None
    assert (run.server.engine.sampling, run.server.drafting.engine.sampling) == ("sorted", "greedy")


def test_the_mended_formula_attends_to_the_keys_that_an_indexer_picks_and_scores_all() -> None:
    """DeepSeek-V3.2 over 8 GPUs, 61 layers: 64 heads of 128 score each key in bf16, and 2,048 keys are seen of however many."""

    def growth(model: str) -> np.ndarray:
        one = server(model, tp=8)
        few, many = (StepBatch(decodes=(keys,)) for keys in (16_384, 32_768))
        features = mended.features_us(one, sums_of([few, many], one.seen))
        found: np.ndarray = (features[1] - features[0]) / (61 * 16_384)
        return found

    dense, picked, gpu = growth("deepseek-v3"), growth("deepseek-v3.2"), server("deepseek-v3.2", tp=8).cluster.gpu
    assert picked[1] == pytest.approx(2 * 64 * 129 / gpu.peak_flops_per_us("bf16"))
    assert picked[2] == pytest.approx(2 * 128 / gpu.bytes_per_us())
    assert dense[2] == pytest.approx(2 * (512 + 64) / gpu.bytes_per_us())


def test_the_mended_formula_limits_prompts_to_the_keys_that_an_indexer_picks_as_kernels_do() -> None:
    """DeepSeek-V3.2 over 8 GPUs: with 16,384 tokens before them, 1,024 of a prompt attend to 2,048 each, by 16 heads, and 64 score all."""
    one = server("deepseek-v3.2", tp=8)
    first, later = (StepBatch(chunks=(Chunk(tokens=1_024, context=context),)) for context in (0, 16_384))
    us = mended.features_us(one, sums_of([first, later], one.seen))[:, 0]
    more = float(us[1] - us[0]) * one.cluster.gpu.peak_flops_per_us("bf16") / 61
    attended = 2 * 16 * (128 + 64 + 128) * (2_048 * 1_024 - 1_024**2 / 2)
    assert more == pytest.approx(attended + 2 * 64 * 129 * 16_384 * 1_024)
    windows = {getattr(each.call, "window", 0) for each in prefill_attention(one, 16_384)}
    assert windows == {0, one.seen.most} == {0, 2_048}


def test_kernels_limit_prompts_to_the_keys_that_an_indexer_picks() -> None:
    """DeepSeek-V3.2 over 8 GPUs: what 16,384 more keys add to 1,024 tokens of a prompt is their scores alone."""
    one = server("deepseek-v3.2", tp=8)
    batches = [StepBatch(chunks=(Chunk(tokens=1_024, context=context),)) for context in (16_384, 32_768)]
    few, many = kernel_features(one)(sums_of(batches, one.seen))[:, GROUPS.index("attention")]
    scores = prefill_attention(one, LONG_PROMPT, kept="all")
    assert {type(each.call) for each in scores} == {Indexer}
    of_pair = sum(priced.total_us for priced in prices_of(one).priced(scores)) / (LONG_PROMPT**2 / 2)
    assert many - few == pytest.approx(of_pair * 16_384 * 1_024, rel=0.05)


def _attention_us(one: Server, tokens: int, context: int = 0) -> float:
    batch = StepBatch(chunks=(Chunk(tokens=tokens, context=context),))
    return float(kernel_features(one)(sums_of([batch], one.seen))[0, GROUPS.index("attention")])


@pytest.mark.parametrize("model, tp", [("llama3.1-70b", 4), ("llama3.1-70b", 8), ("gpt-oss-120b", 4)])
@pytest.mark.parametrize(
    "tokens, least, most", [(512, 0.3, 0.8), (2_048, 0.95, 1.05), (8_192, 1.0, 1.31), (32_768, 1.0, 1.2)]
)
def test_attention_of_prompts_takes_what_the_kernel_does(
    model: str, tp: int, tokens: int, least: float, most: float
) -> None:
    """Few heads on a GPU: a pair of a prompt of 2,048 tokens takes two to three times as long as one of 32,768."""
    one = server(model, tp=tp)
    prices = open_prices(one.cluster, OF_PROMPTS)
    kernel_us = sum(priced.total_us for priced in prices.priced(prefill_attention(one, tokens)))
    assert least <= (_attention_us(one, tokens) - _attention_us(one, 1)) / kernel_us <= most


def test_a_chunk_after_a_long_context_attends_at_the_rate_of_long_prompts() -> None:
    """Llama 3.1 70B over 4 GPUs: 8,192 queries of 16 heads with 104,096 keys each, 80 layers: FlashAttention-3 reaches 0.55 of the peak."""
    one = server("llama3.1-70b", tp=4)
    flops = 4 * 16 * 128 * 80 * 8_192 * (100_000 + 4_096)
    share = flops / _attention_us(one, 8_192, 100_000) / one.cluster.gpu.peak_flops_per_us("bf16")
    assert 0.5 < share < 0.65


@pytest.mark.parametrize("name", ["kernels", "formula"])
def test_chunked_layers_keep_all_tokens_and_see_those_of_their_chunk(name: str) -> None:
    """Llama 4 Scout: 12 of 48 layers attend to all of a long context, 36 to no more than 8,192 tokens, and each has its own cache."""
    one = server("llama4-scout-17b-16e", tp=8, precision="fp8")
    assert one.seen.most == 8_192
    assert (kept_bytes(one).token, kept_bytes(one).window_token) == (48 * 2 * 128 * 2, 0)
    table = stepper(one, name).table

    def us(context: int, chunk: int = 0) -> float:
        batch = (
            StepBatch(chunks=(Chunk(tokens=chunk, context=context),)) if chunk else StepBatch(decodes=(context,) * 8)
        )
        return float(table.times_us(sums_of([batch], one.seen))[0])

    within, whole_chunks = us(8_000) - us(4_000), us(4_000 + 12 * 8_192) - us(4_000 + 11 * 8_192)
    assert whole_chunks == pytest.approx(8_192 / 4_000 * within / 4, rel=0.1)
    assert us(8_192) < us(8_191) < us(2 * 8_192 - 1)
    assert us(40_960) - us(40_959) == pytest.approx(-8_191 / 4_000 * within * 3 / 4, rel=0.1)
    further = us(2_000 + 8_192, 1_024) - us(2_000, 1_024)
    assert further == pytest.approx(8_192 / 4_000 * (us(6_000, 1_024) - us(2_000, 1_024)) / 4, rel=0.1)


@pytest.mark.parametrize(
    "model, tp", [("llama3-8b", 1), ("mistral-7b", 1), ("gemma2-27b", 2), ("llama4-scout-17b-16e", 8)]
)
def test_each_layer_attends_once(model: str, tp: int) -> None:
    one = server(model, tp=tp)
    calls = step_kernels(one, StepBatch(decodes=(9_000, 7_000)))["attention"]
    assert sum(each.count for each in calls) == one.model.layers
    keys = {call.keys for each in calls if isinstance(call := each.call, DecodeAttention)}
    in_chunk = (9_000 - 8_192 + 7_000) // 2
    in_window = {"mistral-7b": {4_096}, "gemma2-27b": {8_000, 4_096}, "llama4-scout-17b-16e": {8_000, in_chunk}}
    assert keys == in_window.get(model, {8_000})


def test_a_pair_of_a_prompt_takes_as_long_on_a_cpu_however_long_it_is() -> None:
    one = load_serving(CONFIGS / "serving" / "this-machine" / "quiet.yml").server
    assert kernel_features(one).prefill_token_us == 0
    assert all(getattr(request.call, "seq_len", 0) != LONG_PROMPT for request in requests_of_server(one))


def test_the_mended_formula_computes_the_head_in_the_dtype_of_activations() -> None:
    """At fp8 the layers alone are faster: the head of each decode takes as long as at bf16. At fp32 its weights are twice as large."""
    batch = sums_of([StepBatch(decodes=(64,) * 8)], Seen())
    bf16, fp8, fp32 = (mended.features_us(server(precision=each), batch)[0] for each in ("bf16", "fp8", "fp32"))
    one = server()
    head = one.model.hidden * one.model.vocab
    head_us = 2 * 8 * head / one.cluster.gpu.peak_flops_per_us("bf16")
    assert fp8[1] - head_us == pytest.approx((bf16[1] - head_us) / 2, rel=0.02)
    assert fp32[2] > 1.9 * bf16[2]


def test_the_mended_formula_reads_the_experts_that_are_expected() -> None:
    experts = server("mixtral-8x7b").model.experts
    assert experts is not None
    sixteen = replace(experts, count=16, topk=1)
    assert mended.distinct_experts(sixteen, np.array([11.0])) == pytest.approx(8.13, abs=0.01)


def test_heads_fewer_than_gpus_are_copied() -> None:
    four, eight = (kept_bytes(server("qwen2.5-7b", tp=tp)).token for tp in (4, 8))
    assert four == eight == 28 * 2 * 128 * 2


@pytest.mark.parametrize("name", MODEL_NAMES)
@pytest.mark.parametrize("model", ["llama3-8b", "mixtral-8x7b", "qwen3.5-35b-a3b", "deepseek-v2-lite"])
def test_time_never_decreases_with_more_work(name: str, model: str) -> None:
    one = stepper(server(model, tp=2), name)
    batches = [StepBatch(decodes=(context,) * count) for count in (1, 8, 9, 64, 128) for context in (0, 1000, 2500)]
    batches += [StepBatch(chunks=(Chunk(tokens=tokens),), decodes=(500,) * 8) for tokens in (1, 100, 1000, 2040)]
    times = [time.median_us for time in one.step_times(batches)]
    by_context = np.array(times[:15]).reshape(5, 3)
    assert (np.diff(by_context, axis=1) > 0).all()
    assert min(times) > 0
    assert (np.diff(by_context, axis=0) > 0).all()
    assert (np.diff(times[15:]) > 0).all()


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_terms_add_up_to_the_step(name: str) -> None:
    one = stepper(server(), name)
    for batch in (ONE, StepBatch(decodes=(640,) * 24), StepBatch(chunks=(Chunk(tokens=256, context=512),))):
        (time,) = one.step_times([batch])
        assert sum(one.ledger_us(batch).values()) == pytest.approx(time.median_us, rel=0.01)
        assert time.low_us < time.median_us < time.high_us


def test_decodes_are_padded_to_the_next_graph() -> None:
    decodes = np.array([1.0, 9.0, 17.0, 600.0])
    assert computed_tokens(sums(decodes=decodes), (1, 8, 16, 24, 512)).tolist() == [1, 16, 24, 600]
    assert computed_tokens(sums(decodes=decodes, prefill_tokens=1.0), (8, 512)).tolist() == [2, 10, 18, 601]
    features = kernel_features(
        server(settings=engine(max_num_seqs=128, max_num_batched_tokens=2048, graph_sizes=(16, 24)))
    )
    gemm = features(sums(decodes=np.array([9.0, 16.0, 17.0, 24.0])))[:, GROUPS.index("gemm")]
    assert gemm[0] == gemm[1] < gemm[2] == gemm[3]


@pytest.mark.parametrize(("changed", "group"), [({"tp": 2}, "all_reduce"), ({"expert_parallel": True, "tp": 2}, "moe")])
def test_a_placement_moves_its_kernels(changed: dict[str, object], group: str) -> None:
    batch = sums(decodes=32.0, decode_context=32_000.0)
    before, after = (kernel_features(server("mixtral-8x7b", **placed))(batch)[0] for placed in ({"tp": 1}, changed))
    place = GROUPS.index(group)  # type: ignore[arg-type]
    assert (after[place] > before[place]) if group == "all_reduce" else (after[place] < 0.75 * before[place])


def test_a_batch_beyond_the_engine_is_refused() -> None:
    with pytest.raises(UserError, match="129 decodes"):
        stepper(server(), "formula").step_times([StepBatch(decodes=(10,) * 129)])
    with pytest.raises(UserError, match=r"chunks\[0\].*\n.*decodes\[1\]"):
        StepBatch(chunks=(Chunk(tokens=0),), decodes=(1, -1))


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_shipped_weights_lie_within_their_bounds(name: str) -> None:
    for term, weight in shipped_coefficients(name).weights.items():
        bounds = MODELS[name].terms[term]
        assert bounds.low <= weight.low <= weight.value <= weight.high <= bounds.high


def test_linear_features_make_an_exact_table() -> None:
    one = stepper(server("mixtral-8x7b", tp=2), "formula")
    weights = np.array(list(one.coefficients.values.values()))
    batches = [ONE, StepBatch(decodes=(3,) * 100), StepBatch(chunks=(Chunk(tokens=7, context=11),) * 3)]
    exact = partial(mended.features_us, one.server)(sums_of(batches, Seen())) @ weights
    np.testing.assert_allclose(one.table.times_us(sums_of(batches, Seen())), exact, rtol=1e-9)


def test_the_speed_of_light_counts_the_tokens_before_a_chunk() -> None:
    one = stepper(server())
    alone, after = (one.bound_us(StepBatch(chunks=(Chunk(tokens=512, context=context),))) for context in (0, 4096))
    # 32 layers of 32 heads of 128: 4 FLOPs per element of each of 512 · 4096 pairs, at 989 TFLOP/s
    assert after - alone == pytest.approx(32 * 4 * 32 * 128 * 512 * 4096 / 989e6, rel=0.1)


def test_the_speed_of_light_is_below_every_model() -> None:
    for placed in (server(), server("mixtral-8x7b", tp=2), server("llama3-8b", "A100")):
        one = stepper(placed)
        for batch in (ONE, StepBatch(decodes=(900,) * 32), StepBatch(chunks=(Chunk(tokens=2000),))):
            (time,) = one.step_times([batch])
            assert 0.3 * time.low_us < one.bound_us(batch) < time.low_us
            assert sum(one.sources(batch).values()) == pytest.approx(1)


def test_sliding_layers_read_their_window() -> None:
    sliding = server("gemma2-27b", tp=2, settings=engine(max_num_seqs=32, max_num_batched_tokens=512))
    sliding = replace(sliding, model=replace(sliding.model, max_positions=32_768))
    short, long = (
        stepper(sliding).step_times([StepBatch(decodes=(keys,) * 12)])[0].median_us for keys in (4096, 16_384)
    )
    full = replace(sliding, model=replace(sliding.model, layer_kinds=(), window=0))
    assert long - short < 0.7 * (
        stepper(full).step_times([StepBatch(decodes=(16_384,) * 12)])[0].median_us
        - stepper(full).step_times([StepBatch(decodes=(4096,) * 12)])[0].median_us
    )


def test_states_cost_decodes_alone_and_latent_keys_are_read_once_for_all_heads() -> None:
    hybrid, latent = stepper(server("qwen3.5-35b-a3b", tp=2)), stepper(server("deepseek-v2-lite"))
    with_decodes = StepBatch(chunks=(Chunk(tokens=1),), decodes=(0,) * 64)
    alike = StepBatch(chunks=(Chunk(tokens=65),))
    states = 2 * 30 * 64 * (16 * 128 * 128 * 4 + 4096 * 3 * 2)  # 30 layers read and write the states of 64 sequences
    decodes, chunk = (hybrid.ledger_us(batch)["attention"] for batch in (with_decodes, alike))
    assert decodes - chunk > 0.9 * states / 3.352e6
    for batch in (with_decodes, alike):
        assert sum(hybrid.ledger_us(batch).values()) == pytest.approx(hybrid.step_times([batch])[0].median_us, rel=0.01)
    near, far = (latent.ledger_us(StepBatch(decodes=(keys,) * 64))["attention"] for keys in (1000, 9000))
    assert far - near == pytest.approx(27 * 64 * 8000 * 576 * 2 / 3.352e6, rel=0.35)


def test_experts_spread_over_nodes_are_exchanged_between_nodes() -> None:
    one = server("deepseek-v3", dp=8, expert_parallel=True)
    two = replace(
        one,
        placement=replace(one.placement, tp=2, dp=8),
        cluster=load_cluster(hardware="H100", nodes=2, gpus_per_node=8, profile="analytic"),
    )
    for placed, per_node in ((one, 8), (two, 4)):
        exchanged = [each.call for each in token_kernels(placed, 64)["all_reduce"]]
        gathered = [call for call in exchanged if isinstance(call, AllGather)]
        assert gathered
        assert {(call.ranks, call.ranks_per_node) for call in gathered} == {(8, per_node)}


def test_the_head_takes_the_last_token_of_each_request_alone() -> None:
    chunk = sums_of([StepBatch(chunks=(Chunk(tokens=1024),))], Seen())
    few, many = (
        kernel_features(server(settings=engine(max_num_seqs=most, max_num_batched_tokens=2048)))(chunk)[0]
        for most in (16, 1024)
    )
    assert many == pytest.approx(few, rel=1e-3)


def test_experts_are_sliced_over_the_gpus_of_all_replicas() -> None:
    """Each GPU holds and reads as much of the experts as with whole ones, for the tokens of all replicas."""
    one, sliced, whole = (
        server("mixtral-8x7b", tp=2),
        server("mixtral-8x7b", tp=2, dp=2),
        server("mixtral-8x7b", tp=2, dp=2, expert_parallel=True),
    )
    assert weight_bytes(sliced) == weight_bytes(whole) < 0.6 * weight_bytes(one)
    product = next(each.call for each in token_kernels(sliced, 16)["moe"] if isinstance(each.call, GroupedGemm))
    assert (product.groups, product.rows, product.n * product.k) == (8, 64, 2 * 14336 // 4 * 4096)
    assert {type(each.call) for each in token_kernels(sliced, 16)["all_reduce"]} > {AllGather, ReduceScatter}
    batch = StepBatch(decodes=(500,) * 64)
    for name in ("kernels", "formula"):
        # twice the tokens of half the experts' weights
        times = [stepper(placed, name).step_times([batch])[0].median_us for placed in (one, sliced)]
        assert 0.5 < times[1] / times[0] < 1.1
