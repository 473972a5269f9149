"""Activations of experts, latent and linear attention against what torch saves for backward on transformers' modules."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from predict.huggingface.config_json import load_model
from predict.memory.activations import Activations, layer_activations
from predict.rank.share import RankShare
from tests.predict.memory.counted_layers import PROFILES
from tests.predict.memory.saved_bytes import BF16, FP32, saved_bytes
from tests.predict.workload.parallel_runs import made

BATCH, HIDDEN = 2, 64
EXPERTS = {"moe_intermediate_size": 40, "num_experts_per_tok": 4}
SHAPE = {"hidden_size": HIDDEN, "num_attention_heads": 8, "intermediate_size": 96, "vocab_size": 96}


class FlashStandIn(torch.autograd.Function):
    """Keeps what flash attention keeps: queries, keys, values, output and the log-sum-exp, heads before tokens."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        output = query.new_zeros(*query.shape[:-1], value.shape[-1])
        ctx.save_for_backward(query, key, value, output, query.new_zeros(query.shape[:-1], dtype=torch.float32))
        return output


def flash(_: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *__: Any, **___: Any) -> Any:
    return FlashStandIn.apply(query, key, value).transpose(1, 2), None


def initialised(layer: nn.Module, dtype: torch.dtype) -> nn.Module:
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.1)
    return layer.to(dtype).train()


def qwen3_moe() -> tuple[Any, Any, Any]:
    from transformers import Qwen3MoeConfig
    from transformers.models.qwen3_moe import modeling_qwen3_moe as modeling

    config = Qwen3MoeConfig(
        **SHAPE,
        **EXPERTS,
        num_experts=16,
        num_key_value_heads=2,
        head_dim=16,
        norm_topk_prob=True,
        num_hidden_layers=1,
        attn_implementation="sdpa",
        experts_implementation="grouped_mm",
    )
    return config, modeling.Qwen3MoeDecoderLayer, modeling.Qwen3MoeRotaryEmbedding


def deepseek(*, q_rank: int | None = 24, first_dense: int = 0) -> tuple[Any, Any, Any]:
    from transformers import AttentionInterface, DeepseekV3Config
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as modeling

    AttentionInterface.register("flash_stand_in", flash)
    config = DeepseekV3Config(
        **SHAPE,
        **EXPERTS,
        n_routed_experts=16,
        n_group=8,
        topk_group=4,
        n_shared_experts=2,
        first_k_dense_replace=first_dense,
        num_key_value_heads=8,
        q_lora_rank=q_rank,
        kv_lora_rank=20,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=12,
        num_hidden_layers=1,
        attn_implementation="flash_stand_in",
        experts_implementation="grouped_mm",
    )
    return config, modeling.DeepseekV3DecoderLayer, modeling.DeepseekV3RotaryEmbedding


def qwen3_next(mixer: str, *, dense: bool = False) -> tuple[Any, Any, Any]:
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next import modeling_qwen3_next as modeling

    config = Qwen3NextConfig(
        **SHAPE,
        **EXPERTS,
        num_experts=16,
        shared_expert_intermediate_size=48,
        num_key_value_heads=2,
        head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=12,
        partial_rotary_factor=0.5,
        num_hidden_layers=1,
        layer_types=[mixer],
        mlp_only_layers=[0] if dense else [],
        attn_implementation="sdpa",
        experts_implementation="grouped_mm",
    )
    return config, modeling.Qwen3NextDecoderLayer, modeling.Qwen3NextRotaryEmbedding


def counted_and_predicted(
    made_of: tuple[Any, Any, Any], dtype: torch.dtype, *, seq: int = 48, modules: str = "", profile: str = "eager"
) -> tuple[int, Activations]:
    config, kind, rotary = made_of
    layer = initialised(kind(config, 0), dtype)
    for name in filter(None, modules.split(",")):
        recompute(layer, name)
    x = torch.randn(BATCH, seq, HIDDEN, dtype=dtype, requires_grad=True)
    positions = rotary(config)(x, torch.arange(seq)[None])

    def forward(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return layer(x, position_embeddings=(cos, sin))

    if profile == "fsdp2-compile":
        torch._dynamo.reset()
        forward = torch.compile(forward, backend="aot_eager_decomp_partition")
        forward(x, *positions)
    counted = saved_bytes(lambda: forward(x, *positions), [layer])
    spec = load_model({**config.to_dict(), "architectures": [kind.__name__.replace("DecoderLayer", "ForCausalLM")]})
    settings: dict[str, Any] = {}
    if modules:
        settings = {"plan__recompute": "selective", "plan__recompute_modules": modules}
    run = made(
        spec,
        precision="bf16" if dtype is BF16 else "fp32",
        batch={"global": BATCH, "micro": BATCH, "seq_len": seq},
        **settings,
    )
    chosen = "selective" if modules else "none"
    return counted, layer_activations(RankShare(run=run), spec.kinds()[0], PROFILES[profile], recompute=chosen)


def recompute(layer: Any, name: str) -> None:
    """Recompute the module that Megatron calls `name` with torch's checkpoint."""
    mlp = layer.mlp
    modules = {
        "moe": lambda: [(mlp, "forward")],
        "moe_act": lambda: [(mlp.experts, "_apply_gate")],
        "shared_experts": lambda: [(mlp.shared_experts, "forward")],
        "mlp": lambda: [(mlp, "forward")],
        "layernorm": lambda: [(layer.input_layernorm, "forward"), (layer.post_attention_layernorm, "forward")],
    }
    for module, method in modules[name]():
        setattr(module, method, partial(checkpoint, getattr(module, method), use_reentrant=False))


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_qwen3_moe_keeps_every_byte_that_torch_saves(dtype: torch.dtype) -> None:
    counted, predicted = counted_and_predicted(qwen3_moe(), dtype)
    assert predicted.kept_bytes == counted


@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize("first_dense", [0, 1])
@pytest.mark.parametrize("q_rank", [24, None])
def test_deepseek_v3_keeps_every_byte_that_torch_saves(
    dtype: torch.dtype, first_dense: int, q_rank: int | None
) -> None:
    counted, predicted = counted_and_predicted(deepseek(q_rank=q_rank, first_dense=first_dense), dtype)
    assert predicted.kept_bytes == counted


@pytest.mark.parametrize("modules", ["moe", "moe_act", "layernorm", "moe,layernorm"])
def test_modules_of_qwen3_moe_are_recomputed(modules: str) -> None:
    counted, predicted = counted_and_predicted(qwen3_moe(), BF16, modules=modules)
    assert predicted.kept_bytes == counted


@pytest.mark.parametrize("modules", ["moe", "moe_act", "shared_experts", "moe_act,shared_experts"])
def test_modules_of_deepseek_v3_are_recomputed(modules: str) -> None:
    counted, predicted = counted_and_predicted(deepseek(), BF16, modules=modules)
    assert predicted.kept_bytes == counted


@pytest.mark.parametrize("dense", [True, False])
def test_gated_delta_net_keeps_every_byte_that_torch_saves(dense: bool) -> None:
    counted, predicted = counted_and_predicted(qwen3_next("linear_attention", dense=dense), BF16, seq=128)
    assert predicted.kept_bytes == counted


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_gated_attention_keeps_every_byte_that_torch_saves(dtype: torch.dtype) -> None:
    counted, predicted = counted_and_predicted(qwen3_next("full_attention", dense=True), dtype)
    assert predicted.kept_bytes == counted


@pytest.mark.filterwarnings("ignore:Dynamo detected")
@pytest.mark.parametrize("name", ["experts", "gated attention", "latent attention"])
def test_torch_compile_keeps_within_a_percent_of_the_compiled_profile(name: str) -> None:
    made_of = {
        "experts": qwen3_moe,
        "gated attention": partial(qwen3_next, "full_attention", dense=True),
        "latent attention": partial(deepseek, first_dense=1),
    }[name]()
    counted, predicted = counted_and_predicted(made_of, BF16, profile="fsdp2-compile")
    assert predicted.kept_bytes == pytest.approx(counted, rel=0.01)
