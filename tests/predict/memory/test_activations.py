"""Activations of every memory profile: which bytes each degree of parallelism divides, and that none rise."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predict.layers.latent import LatentAttention
from predict.layers.routing import busiest_rank
from predict.memory.activations import Activations, _without_waiting, between_halves, layer_activations
from predict.model.spec import DENSE, LayerKind
from predict.rank.share import padded_vocabulary
from predict.run.frameworks import memory_profile_of
from predict.run.memory_profile import LOSSES, MemoryProfile
from tests.predict.memory.counted_layers import KINDS, PROFILES, SPARSE, TOKENS, layer, rank_of, role_activations
from tests.predict.workload.parallel_runs import made, spec


def test_what_waits_on_the_host_is_back_while_its_layer_works() -> None:
    here = Activations(components={"mlp": 8.0, "norm": 4.0}, forward_working_bytes=3.0, backward_working_bytes=5.0)
    away = _without_waiting(here, 0.25)
    assert away.components == {"mlp": 6.0, "norm": 3.0}
    assert (away.forward_working_bytes, away.backward_working_bytes) == (3 + 3, 5 + 3)


def test_the_weights_half_of_a_gpt_needs_what_the_zero_bubble_paper_counts() -> None:
    """32·s·b·h bytes of 16-bit inputs and gradients of outputs (Qi et al., arXiv 2401.10241, table 1)."""
    rank = rank_of("gpt3-175b", seq_len=2048, execution__dropout=True)
    assert between_halves(rank, DENSE, PROFILES["megatron-te"]).held_bytes == 32 * 2048 * 12288


@pytest.mark.parametrize("model", ["llama3-8b", "deepseek-v3", "qwen3-next-80b-a3b", "gpt-oss-20b"])
@pytest.mark.parametrize("profile", PROFILES)
def test_a_recomputed_layer_holds_no_more_between_its_halves_than_one_that_is_not(model: str, profile: str) -> None:
    for kind in set(spec(model).kinds()):
        kept = layer(model, kind, profile).kept_without_rotary_bytes
        assert 0.3 * kept < between_halves(rank_of(model), kind, PROFILES[profile]).held_bytes <= kept


@pytest.mark.parametrize("profile", PROFILES)
def test_sequence_parallelism_divides_norms_and_dropout(profile: str) -> None:
    whole, split = (
        layer("gpt3-175b", DENSE, profile, seq_len=2048, plan__tp=4, plan__sp=sp, execution__dropout=True).components
        for sp in (False, True)
    )
    inputs = {"qkv", "mlp"} if PROFILES[profile].megatron else set()
    for component, size in whole.items():
        if component in ("norm", "dropout"):
            assert split[component] == size / 4
        elif component in inputs:
            # Megatron's products keep their share of what they gather
            assert size - split[component] == 3 / 4 * 2 * 2048 * 12288
        else:
            assert split[component] == size


@pytest.mark.parametrize("profile", PROFILES)
def test_tensor_parallelism_divides_attention_and_mlp_alone(profile: str) -> None:
    whole, split = (layer("llama3-70b", DENSE, profile, plan__tp=tp).components for tp in (1, 4))
    entered = 2 * TOKENS * 8192
    assert split["norm"] == whole["norm"]
    # beside what entered, a profile may keep the joint product
    assert split["qkv"] - entered == (whole["qkv"] - entered) / 4
    assert split["core_attn"] == whole["core_attn"] / 4
    assert split["proj"] == whole["proj"] / 4
    assert split["mlp"] - entered == (whole["mlp"] - entered) / 4
    assert split.get("rope") == whole.get("rope")


@pytest.mark.parametrize("profile", PROFILES)
def test_expert_parallelism_moves_rows_but_leaves_as_many(profile: str) -> None:
    model = spec("qwen3-30b-a3b")
    experts = model.experts
    assert experts is not None
    whole, split = (layer(model, SPARSE, profile, plan__dp=8, plan__ep=ep).components for ep in (1, 8))
    assert {**split, "permute": 0} == {**whole, "permute": 0}
    # only how many rows each local expert has
    assert whole["permute"] - split["permute"] in (0, 4 * 128 * 7 / 8)
    skewed = layer(model, SPARSE, profile, plan__dp=8, plan__ep=8, execution__expert_load="power_law_1.0").components
    load = busiest_rank("power_law_1.0", experts, 8)
    assert load > 1
    assert skewed["experts"] == pytest.approx(load * split["experts"])
    assert skewed["core_attn"] == split["core_attn"]


@pytest.mark.parametrize("profile", PROFILES)
def test_tensor_parallel_experts_hold_more_rows_of_narrower_experts(profile: str) -> None:
    model = spec("qwen3-30b-a3b")
    experts = model.experts
    assert experts is not None
    whole, split = (layer(model, SPARSE, profile, plan__dp=8, plan__ep=2, plan__etp=etp).components for etp in (1, 2))
    gathered = split["experts"] - whole["experts"]
    copies = 1 if PROFILES[profile].weighted_activation else 2
    assert gathered == copies * 2 * TOKENS * experts.topk * model.hidden
    assert {**split, "experts": 0, "permute": 0} == {**whole, "experts": 0, "permute": 0}


@pytest.mark.parametrize("profile", PROFILES)
def test_pipeline_and_data_parallelism_divide_nothing_of_a_layer(profile: str) -> None:
    alone = layer("llama3-70b", DENSE, profile)
    assert layer("llama3-70b", DENSE, profile, plan__pp=4) == alone
    assert layer("llama3-70b", DENSE, profile, plan__dp=4) == alone


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_ends_divide_the_vocabulary_and_count_no_residual(profile: MemoryProfile) -> None:
    model = spec("llama3-70b")
    whole, split = (role_activations("head", rank_of(model, plan__tp=tp), profile) for tp in (1, 8))
    vocab = padded_vocabulary(model.vocab, 1) if profile.megatron else model.vocab
    a_logit = LOSSES[profile.loss][2]
    # the loss also keeps a few bytes per token
    few = 16 * TOKENS
    assert whole.components["loss"] == pytest.approx(a_logit.kept * TOKENS * vocab, rel=1e-3, abs=few)
    assert whole.forward_working_bytes == pytest.approx((a_logit.forward - a_logit.kept) * TOKENS * vocab, rel=1e-3)
    assert split.components["loss"] == pytest.approx(whole.components["loss"] / 8, rel=1e-2, abs=few)
    assert (split.backward_working_bytes < whole.backward_working_bytes) == (a_logit.backward > a_logit.kept)
    embedding = role_activations("embedding", rank_of(model), profile)
    assert embedding.kept_bytes == 8 * TOKENS
    assert (
        role_activations("joining", rank_of("deepseek-v3"), profile).kept_bytes
        < layer("deepseek-v3", SPARSE, profile.name).kept_bytes
    )


def test_a_plain_nonlinearity_keeps_its_result_where_rows_are_weighted_after_it() -> None:
    model = spec("qwen3-30b-a3b")
    assert model.experts is not None
    plain = replace(model, experts=replace(model.experts, gated=False))
    kept = layer(plain, SPARSE, "megatron-te", plan__dp=8, plan__ep=8).components["experts"]
    rows = TOKENS * model.experts.topk
    assert kept == 2 * rows * (model.hidden + 3 * model.experts.ffn)


def test_recomputation_by_operators_keeps_attention_and_every_second_product() -> None:
    model = spec("llama3-8b")
    found = layer(model, DENSE, "fsdp2-compile", "ops").components
    # queries, values, the gate and the second product of the MLP; and the layer's input
    widths = model.q_width + model.kv_width + model.ffn + model.hidden
    assert found["products"] == 2 * TOKENS * widths
    assert found["core_attn"] == TOKENS * (2 * model.q_width + 4 * model.heads)
    assert found["residual"] == 2 * TOKENS * model.hidden


def test_a_compiled_framework_that_runs_eagerly_has_another_profile() -> None:
    torchtitan: dict[str, Any] = {"execution__framework": "torchtitan"}
    assert memory_profile_of(made("llama3-8b", **torchtitan)).name == "fsdp2-compile"
    assert memory_profile_of(made("llama3-8b", execution__elementwise="eager", **torchtitan)).name == "fsdp2"


SIZES = st.fixed_dictionaries(
    {
        "profile": st.sampled_from(tuple(PROFILES)),
        "kind": st.sampled_from(KINDS),
        "micro": st.integers(1, 4),
        "seq": st.sampled_from([256, 1024, 4096]),
        "attention": st.sampled_from(["best", "unfused"]),
        "dropout": st.booleans(),
    }
)


def sized(size: Mapping[str, Any], recompute: str = "none", **changes: Any) -> float:
    size = {**size, **changes}
    model, kind = size["kind"]
    of = spec(model)
    of = replace(of, hidden=of.hidden * size.get("wider", 1))
    settings = {"execution__attention": size["attention"], "execution__dropout": size["dropout"]}
    if size.get("tp", 1) > 1:
        settings |= {"plan__tp": size["tp"], "plan__sp": True}
    modules = {"modules": size["modules"]} if "modules" in size else {}
    return layer(
        of, kind, size["profile"], recompute, micro=size["micro"], seq_len=size["seq"], **settings, **modules
    ).kept_bytes


@settings(max_examples=40)
@given(SIZES)
def test_kept_bytes_grow_with_every_size(size: dict[str, Any]) -> None:
    base = sized(size)
    assert sized(size, micro=size["micro"] + 1) > base
    assert sized(size, seq=2 * size["seq"]) > base
    assert sized(size, wider=2) > base


@settings(max_examples=40)
@given(SIZES, st.sets(st.sampled_from(["core_attn", "layernorm", "moe", "moe_act"]), min_size=1))
def test_kept_bytes_never_rise_with_tp_or_recompute(size: dict[str, Any], modules: set[str]) -> None:
    base = sized(size)
    assert sized(size, tp=2) <= base
    assert sized(size, tp=4) <= sized(size, tp=2)
    if size["kind"][1].sparse or not modules & {"moe", "moe_act"}:
        chosen = sized(size, "selective", modules=",".join(sorted(modules)))
        assert sized(size, "full") <= chosen <= base


# Activations equal published forms and known bytes of models.


@pytest.mark.parametrize(
    ("profile", "a_token"),
    [("megatron-te", 139_400), ("fsdp2-compile", 139_400), ("fsdp2", 168_072), ("eager", 200_840)],
)
def test_a_layer_of_llama_8b_keeps_the_known_bytes_a_token(profile: str, a_token: int) -> None:
    assert layer("llama3-8b", DENSE, profile).kept_without_rotary_bytes == a_token * TOKENS


@pytest.mark.parametrize(
    ("plan", "recompute", "form"),
    [
        ({}, "none", lambda t, squares: 34 + squares),
        ({"plan__tp": 8}, "none", lambda t, squares: 10 + 24 / t + squares / t),
        ({"plan__tp": 8, "plan__sp": True}, "none", lambda t, squares: 34 / t + squares / t),
        ({"plan__tp": 8, "plan__sp": True}, "selective", lambda t, squares: 34 / t),
        ({}, "selective", lambda t, squares: 34),
        ({}, "full", lambda t, squares: 2),
    ],
    ids=("no parallelism", "tp", "tp and sp", "tp, sp, selective", "selective", "full"),
)
def test_korthikanti_s_forms_hold_on_their_assumptions(plan: dict[str, Any], recompute: str, form: Any) -> None:
    """arXiv 2205.05198, equations 1 to 4 and table 2: 16-bit, dropout, no statistics of norms."""
    model, seq, micro = spec("gpt3-175b"), 2048, 2
    found = layer(
        model,
        DENSE,
        "deepspeed",
        recompute,
        micro=micro,
        seq_len=seq,
        execution__attention="unfused",
        execution__dropout=True,
        **plan,
    )
    degree = plan.get("plan__tp", 1)
    rows = seq * micro / (degree if "plan__sp" in plan else 1)
    statistics = 0 if recompute == "full" else 2 * 8 * rows
    expected = form(degree, 5 * model.heads * seq / model.hidden)
    assert found.kept_bytes - statistics == pytest.approx(seq * micro * model.hidden * expected, rel=1e-12)


def test_transformer_engine_s_experts_and_latent_attention_keep_what_their_products_read() -> None:
    model = spec("deepseek-v3")
    experts, latent, hidden, heads = model.experts, model.attention, model.hidden, model.heads
    assert experts is not None and isinstance(latent, LatentAttention)
    found = layer(model, SPARSE, "megatron-te").components
    rows = TOKENS * experts.topk
    assert found["experts"] == 2 * rows * (hidden + 3 * experts.ffn)
    assert found["shared_experts"] == 2 * TOKENS * 3 * experts.shared_ffn
    assert found["router"] == TOKENS * (2 * hidden + 9 * experts.count)
    ranks = latent.q_rank + latent.kv_rank
    assert found["qkv"] == TOKENS * (2 * (hidden + 2 * ranks + latent.rope_dim) + 8)
    core = heads * (2 * latent.query_dim + latent.value_dim)
    assert found["core_attn"] == TOKENS * (2 * core + 4 * heads)


def test_megatron_core_frees_the_outputs_of_what_it_recomputes() -> None:
    model = spec("deepseek-v3")
    experts, latent = model.experts, model.attention
    assert experts is not None and isinstance(latent, LatentAttention)

    def freed(modules: str, kind: LayerKind = SPARSE, of: str = "deepseek-v3") -> float:
        whole = layer(of, kind, "megatron-te").kept_bytes
        return (whole - layer(of, kind, "megatron-te", "selective", modules=modules).kept_bytes) / TOKENS

    assert freed("layernorm") == 2 * (2 * model.hidden + 4)
    assert freed("moe_act") == 2 * experts.topk * experts.ffn
    assert freed("shared_experts") == 2 * 3 * experts.shared_ffn
    arguments = 2 * model.heads * (2 * latent.query_dim + latent.value_dim)
    assert freed("mla_up_proj") == arguments + 2 * (latent.q_rank + latent.kv_rank) + 8
    assert freed("core_attn,mla_up_proj") == freed("core_attn") + freed("mla_up_proj")
    assert freed("moe,moe_act,shared_experts") == freed("moe")
    # Transformer Engine's norm is part of the product after it in a dense layer
    assert freed("layernorm", DENSE, "llama3-70b") == 0


def test_fp8_products_of_transformer_engine_keep_a_byte_of_their_inputs() -> None:
    model = spec("llama3-70b")
    wide, narrow = (layer(model, DENSE, "megatron-te", precision=precision).kept_bytes for precision in ("bf16", "fp8"))
    assert (wide - narrow) / TOKENS == 2 * model.hidden + model.ffn - model.q_width
    assert layer(model, DENSE, "fsdp2", precision="fp8") == layer(model, DENSE, "fsdp2")


def test_parallel_branches_keep_the_stream_that_both_norms_read_once() -> None:
    model = spec("gpt-neox-20b")
    assert model.parallel_residual
    one, two = (
        layer(of, DENSE, "eager", seq_len=2048).components["norm"]
        for of in (model, replace(model, parallel_residual=False))
    )
    assert two - one == 2 * 2048 * model.hidden


def test_a_norm_of_each_branch_keeps_two_inputs_more() -> None:
    model = spec("gemma3-27b")
    assert model.norms_a_layer == 4
    assert layer(model, DENSE, "fsdp2").components["norm"] == 4 * TOKENS * (2 * model.hidden + 4)


def test_a_layer_that_is_one_part_alone_may_be_a_graph() -> None:
    """Its mixer's tensors are in the graph's pool; a feed-forward alone has none there."""
    for name, kinds in (("nemotron-h-8b", {"mamba", "dense"}), ("wan2.1-t2v-1.3b", {"full"})):
        model = spec(name)
        rank = rank_of(model, execution={"cuda_graphs": "layers"})
        alone = {kind.name: kind for kind in model.kinds() if kind.parts == 1}
        assert kinds <= alone.keys()
        for kind in alone.values():
            found = layer_activations(rank, kind, PROFILES["eager"], recompute="none").in_graphs_bytes
            assert (found > 0) == kind.has_mixer
