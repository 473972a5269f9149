"""Activations against published forms, known bytes of models, and another tool's numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from predict.memory.activations import layer_activations
from predict.model.layer_kinds import DENSE, LayerKind
from tests.needs import SHARED, needs_table
from tests.predict.memory.test_activations import PROFILES, SPARSE, TOKENS, layer, rank_of
from tests.predict.workload.parallel_runs import spec

PEER_COMPONENTS = "oracles/memory/components.json"


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
    experts, latent, hidden, heads = model.experts, model.latent, model.hidden, model.heads
    assert experts is not None and latent is not None
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
    experts, latent = model.experts, model.latent
    assert experts is not None and latent is not None

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


def peer_rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((SHARED / PEER_COMPONENTS).read_text())
    return [row for row in rows if row["recompute"] == "none" and row["nnodes"] == 1]


SAME_FORM = {
    "llama3.1_70B": "llama3-70b",
    "llama2_7B": "llama2-7b",
    "llama3.1_405B": "llama3.1-405b",
    "mixtral_8x22B_v0.1": "mixtral-8x22b",
    "mixtral_8x7B_v0.1": "mixtral-8x7b",
}
"""The peer's models whose formulas are ours. It counts keys and values twice where head_dim is given (Qwen3, GPT-OSS), and its
numbers for latent attention follow no formula that we could find."""


@needs_table(PEER_COMPONENTS)
@pytest.mark.parametrize("name", SAME_FORM)
def test_a_peer_s_components_agree_but_for_named_differences(name: str) -> None:
    row = next(row for row in peer_rows() if row["config"].startswith(f"{name}-"))
    model, tokens = spec(SAME_FORM[name]), row["mbs"] * row["seq"]
    plan = {"plan__tp": row["tp"], "plan__sp": row["tp"] > 1}
    rank = rank_of(model, micro=row["mbs"], seq_len=row["seq"], **plan)
    found = layer_activations(
        rank, DENSE if model.experts is None else SPARSE, PROFILES["megatron-te"], recompute="none"
    ).components
    kind = "dense" if model.experts is None else "moe"
    theirs = {part: row[f"A_{kind}_transformer_layer.{part}"] for part in ("layer_norm", "self_attention", "mlp")}
    # they leave out the statistics of norms and attention
    assert found["norm"] - 2 * 4 * rank.rows == 2 * theirs["layer_norm"]
    statistics = 4 * tokens * model.heads // row["tp"]
    assert found["qkv"] + found["core_attn"] + found["proj"] - statistics == theirs["self_attention"]
    stream = 2 * rank.rows * model.hidden
    if model.experts is None:
        assert found["mlp"] == theirs["mlp"]
        # they count the residual stream beside the norms that keep it
        assert row["A_dense_transformer_layer"] - sum(theirs.values()) - theirs["layer_norm"] == 3 * stream
    else:
        # their experts read one copy of a token, however many it is sent to
        assert found["experts"] - theirs["mlp"] == stream * (model.experts.topk - 1)
        assert found["router"] - tokens * 9 * model.experts.count == row["A_moe_transformer_layer.router"]


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
