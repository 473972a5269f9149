"""Activations equal published forms and known bytes of models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from predict.layers.latent import LatentAttention
from predict.model.spec import DENSE, LayerKind
from tests.predict.memory.counted_layers import SPARSE, TOKENS, layer
from tests.predict.workload.parallel_runs import spec


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
