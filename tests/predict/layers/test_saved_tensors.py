"""Activations of dense layers against what torch saves for backward on transformers' own modules."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from predict.huggingface.config_json import load_model
from predict.layers.norms import norm_bytes
from predict.layers.saved_tensors import Sizes
from predict.memory.activations import Activations, layer_activations
from predict.model.spec import DENSE, ModelSpec
from predict.rank.share import RankShare
from predict.run.training_run import TrainingRun
from tests.predict.layers.saved_bytes import BF16, FP32, peaks, saved_bytes
from tests.predict.memory.counted_layers import PROFILES, role_activations
from tests.predict.workload.parallel_runs import made

EAGER = PROFILES["eager"]
BATCH, SEQ = 2, 48
TOKENS = BATCH * SEQ
HIDDEN, HEADS, HEAD_DIM, FFN = 64, 8, 16, 96


def run_of(model: ModelSpec, dtype: torch.dtype, **settings: Any) -> TrainingRun:
    precision = "bf16" if dtype is BF16 else "fp32"
    batch = {"global": BATCH, "micro": BATCH, "seq_len": SEQ}
    return made(model, batch=batch, precision=precision, **settings)


def layer_of(
    model: ModelSpec, dtype: torch.dtype, profile: str, recompute: str = "none", **settings: Any
) -> Activations:
    run = run_of(model, dtype, plan__recompute=recompute, **settings)
    return layer_activations(RankShare(run=run), model.kinds()[0], PROFILES[profile], recompute=recompute)


def llama(name: str = "llama", **changes: Any) -> tuple[Any, ModelSpec]:
    from transformers import LlamaConfig, MistralConfig

    kind = {"llama": LlamaConfig, "mistral": MistralConfig}[name]
    shape = {"hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": 2, "head_dim": HEAD_DIM}
    shape |= {"intermediate_size": FFN, "num_hidden_layers": 1, "vocab_size": 96, "sliding_window": None}
    shape |= {"attn_implementation": "sdpa", **changes}
    config = kind(**{key: value for key, value in shape.items() if name == "mistral" or key != "sliding_window"})
    return config, load_model({"architectures": [f"{name.title()}ForCausalLM"], **config.to_dict()})


def llama_layer(config: Any, dtype: torch.dtype) -> tuple[nn.Module, torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
    from transformers.models.mistral.modeling_mistral import MistralDecoderLayer

    kind = MistralDecoderLayer if config.model_type == "mistral" else LlamaDecoderLayer
    layer = kind(config, 0).to(dtype).train()
    x = torch.randn(BATCH, SEQ, HIDDEN, dtype=dtype, requires_grad=True)
    return layer, x, LlamaRotaryEmbedding(config)(x, torch.arange(SEQ)[None])


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_olmo_2_keeps_as_much_with_its_norms_after_attention_and_mlp(dtype: torch.dtype) -> None:
    from transformers import Olmo2Config
    from transformers.models.olmo2.modeling_olmo2 import Olmo2DecoderLayer

    shape = {"hidden_size": HEADS * HEAD_DIM, "num_attention_heads": HEADS, "num_key_value_heads": 2}
    shape |= {"intermediate_size": FFN, "num_hidden_layers": 1, "vocab_size": 96}
    config = Olmo2Config(**shape, attn_implementation="sdpa")
    layer = Olmo2DecoderLayer(config, 0).to(dtype).train()
    x = torch.randn(BATCH, SEQ, HEADS * HEAD_DIM, dtype=dtype, requires_grad=True)
    positions = llama_layer(llama()[0], dtype)[2]
    counted = saved_bytes(lambda: layer(x, position_embeddings=positions), [layer])
    spec = load_model({"architectures": ["Olmo2ForCausalLM"], **config.to_dict()})
    assert layer_of(spec, dtype, "eager").kept_bytes == counted


def causal_mask(dtype: torch.dtype) -> torch.Tensor:
    return torch.full((1, 1, SEQ, SEQ), -1e9, dtype=dtype).triu(1)


@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_a_layer_keeps_every_byte_that_torch_saves(name: str, kernel: str, dtype: torch.dtype) -> None:
    config, spec = llama(name, attn_implementation=kernel)
    layer, x, positions = llama_layer(config, dtype)
    mask = causal_mask(dtype) if kernel == "eager" else None
    counted = saved_bytes(lambda: layer(x, position_embeddings=positions, attention_mask=mask), [layer])
    attention = {"execution__attention": "unfused" if kernel == "eager" else "fa2"}
    assert layer_of(spec, dtype, "eager", **attention).kept_bytes == counted


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_a_whole_checkpointed_layer_keeps_its_input_and_the_rotary_tables(dtype: torch.dtype) -> None:
    config, spec = llama()
    layer, x, positions = llama_layer(config, dtype)

    def forward(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return layer(x, position_embeddings=(cos, sin))

    counted = saved_bytes(lambda: checkpoint(forward, x, *positions, use_reentrant=False), [layer])
    kept = layer_of(spec, dtype, "eager", "full").components
    assert kept == {"residual": dtype.itemsize * TOKENS * HIDDEN, "rope": 2 * dtype.itemsize * SEQ * HEAD_DIM}
    assert sum(kept.values()) == counted


def checkpointed(module: nn.Module) -> None:
    module.forward = partial(checkpoint, module.forward, use_reentrant=False)  # type: ignore[method-assign]


@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize("module", ["mlp", "layernorm", "core_attn", "mlp,layernorm"])
def test_a_checkpointed_module_keeps_its_input_alone(
    module: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, spec = llama()
    layer, x, positions = llama_layer(config, dtype)
    kernel = F.scaled_dot_product_attention
    if "mlp" in module:
        checkpointed(layer.mlp)
    if "layernorm" in module:
        checkpointed(layer.input_layernorm)
        checkpointed(layer.post_attention_layernorm)
    if "core_attn" in module:
        monkeypatch.setattr(
            F,
            "scaled_dot_product_attention",
            lambda q, k, v, **kw: checkpoint(partial(kernel, **kw), q, k, v, use_reentrant=False),
        )
    counted = saved_bytes(lambda: layer(x, position_embeddings=positions), [layer])
    predicted = layer_of(spec, dtype, "eager", "selective", plan__recompute_modules=module)
    assert predicted.kept_bytes == counted


@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_gpt2_keeps_every_byte_that_torch_saves(kernel: str, dtype: torch.dtype) -> None:
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    shape = {"n_embd": HIDDEN, "n_head": 4, "n_inner": 4 * HIDDEN, "n_layer": 1, "resid_pdrop": 0.0, "attn_pdrop": 0.0}
    config = GPT2Config(**shape, activation_function="gelu_pytorch_tanh", attn_implementation=kernel)
    spec = load_model({**config.to_dict(), "architectures": ["GPT2LMHeadModel"]})
    block = GPT2Block(config, 0).to(dtype).train()
    x = torch.randn(BATCH, SEQ, HIDDEN, dtype=dtype, requires_grad=True)
    mask = causal_mask(dtype) if kernel == "eager" else None
    counted = saved_bytes(lambda: block(x, attention_mask=mask), [block])
    attention = {"execution__attention": "unfused" if kernel == "eager" else "fa2"}
    predicted = layer_of(spec, dtype, "eager", **attention).kept_bytes
    # a CPU's norms keep their statistics in the input's dtype; transformers adds its mask, others fill with a bool one
    statistics = 2 * TOKENS * (8 - 2 * dtype.itemsize)
    assert predicted - statistics - (SEQ**2 if kernel == "eager" else 0) == counted


class PlainGpt(nn.Module):
    """Megatron-LM's first layers as Korthikanti et al. count them: attention of two products, dropout in three places."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))
        self.qkv, self.proj = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)
        self.dropout = dropout

    def drop(self, x: torch.Tensor) -> torch.Tensor:
        # torch's fused dropout, as on a GPU, whose mask is of bytes
        return torch.native_dropout(x, self.dropout, True)[0] if self.dropout else x

    def core(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(SEQ, SEQ, dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-1, -2)) * 0.25
        return self.drop(scores.masked_fill(mask, -1e9).softmax(-1)) @ v

    def forward(self, x: torch.Tensor, core: Callable[..., torch.Tensor] | None = None) -> torch.Tensor:
        q, k, v = (
            part.view(BATCH, SEQ, 4, 16).transpose(1, 2).contiguous()
            for part in self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        )
        mixed = (core or self.core)(q, k, v).transpose(1, 2).reshape(BATCH, SEQ, HIDDEN)
        # the copy before the projection stands for Megatron's output, which its core lays out so at once
        x = x + self.drop(self.proj(mixed))
        return x + self.drop(self.down(F.gelu(self.up(self.norms[1](x)))))


def gpt_spec() -> ModelSpec:
    shape = {"n_embd": HIDDEN, "n_head": 4, "n_layer": 1, "n_positions": SEQ, "vocab_size": 96, "n_inner": None}
    return load_model({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **shape})


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("recompute", ["none", "selective"])
def test_an_unfused_gpt_layer_keeps_what_korthikanti_counts(dropout: float, recompute: str) -> None:
    layer = PlainGpt(dropout).to(BF16)
    x = torch.randn(BATCH, SEQ, HIDDEN, dtype=BF16, requires_grad=True)
    core = partial(checkpoint, layer.core, use_reentrant=False) if recompute == "selective" else None
    counted = saved_bytes(lambda: layer(x, core), [layer])
    settings = {"execution__attention": "unfused", "execution__dropout": bool(dropout)}
    predicted = layer_of(gpt_spec(), BF16, "eager", recompute, **settings).kept_bytes
    assert predicted - 2 * TOKENS * (8 - 2 * BF16.itemsize) == counted


def test_torch_compile_keeps_as_much_as_the_compiled_profile() -> None:
    config, spec = llama()
    layer, x, positions = llama_layer(config, BF16)
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x, cos, sin: layer(x, position_embeddings=(cos, sin)), backend="aot_eager_decomp_partition"
    )
    compiled(x, *positions)
    assert layer_of(spec, BF16, "fsdp2-compile").kept_bytes == saved_bytes(lambda: compiled(x, *positions), [layer])


def test_torch_compile_keeps_about_as_much_of_an_unfused_gpt_layer() -> None:
    layer = PlainGpt(dropout=0.1).to(BF16)
    x = torch.randn(BATCH, SEQ, HIDDEN, dtype=BF16, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager_decomp_partition")
    compiled(x)
    settings = {"execution__attention": "unfused", "execution__dropout": True}
    predicted = layer_of(gpt_spec(), BF16, "fsdp2-compile", **settings).kept_bytes
    assert predicted == pytest.approx(saved_bytes(lambda: compiled(x), [layer]), rel=0.01)


@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_whole_model_keeps_the_sum_of_its_units_with_the_rotary_tables_once(
    recompute: str, dtype: torch.dtype
) -> None:
    from transformers import LlamaForCausalLM

    config, spec = llama(num_hidden_layers=3, tie_word_embeddings=False)
    model = LlamaForCausalLM(config).to(dtype).train()
    if recompute == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    tokens = torch.randint(0, 96, (BATCH, SEQ))
    counted = saved_bytes(lambda: model(tokens, labels=tokens, use_cache=False), [model])
    rank = RankShare(run=run_of(spec, dtype, plan__recompute=recompute))
    layer = layer_activations(rank, DENSE, EAGER, recompute=recompute)
    units = [role_activations("embedding", rank, EAGER), role_activations("head", rank, EAGER), *[layer] * 3]
    # transformers hands the tables to its checkpoints inside a closure, which holds them unseen by the hooks
    tables = (2 if recompute == "none" else 3) * layer.components["rope"]
    assert sum(unit.kept_bytes for unit in units) - tables == counted


@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("ffn", [96, 512])
def test_peaks_of_forward_and_backward_are_near_what_torch_holds(kernel: str, dtype: torch.dtype, ffn: int) -> None:
    config, spec = llama(attn_implementation=kernel, intermediate_size=ffn)
    layer, x, positions = llama_layer(config, dtype)
    mask = causal_mask(dtype) if kernel == "eager" else None
    known = [x, *layer.parameters(), *positions, *([mask] if mask is not None else [])]
    measured = peaks(lambda: layer(x, position_embeddings=positions, attention_mask=mask), known, x)
    attention = {"execution__attention": "unfused" if kernel == "eager" else "fa2"}
    predicted = layer_of(spec, dtype, "eager", **attention)
    # arguments are not the layer's own: the tables, and its input where the norm keeps it
    own = predicted.kept_bytes - predicted.components["rope"] - (dtype is FP32) * dtype.itemsize * TOKENS * HIDDEN
    assert own + predicted.forward_working_bytes == pytest.approx(measured[0], rel=0.05)
    assert own + predicted.backward_working_bytes == pytest.approx(measured[1], rel=0.1)


@pytest.mark.parametrize("ffn", [96, 512])
def test_a_recomputed_layer_holds_at_most_a_component_in_its_forward_and_a_whole_layer_in_its_backward(
    ffn: int,
) -> None:
    config, spec = llama(intermediate_size=ffn)
    layer, x, positions = llama_layer(config, BF16)

    def forward() -> torch.Tensor:
        return checkpoint(lambda x: layer(x, position_embeddings=positions), x, use_reentrant=False)

    measured = peaks(forward, [x, *layer.parameters(), *positions], x)
    predicted = layer_of(spec, BF16, "eager", "full")
    assert 0.5 * predicted.forward_working_bytes < measured[0] <= predicted.forward_working_bytes
    # the checkpointed input is an argument
    assert predicted.backward_working_bytes == pytest.approx(measured[1], rel=0.1)


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_the_loss_holds_between_the_bytes_a_logit_of_its_table(dtype: torch.dtype) -> None:
    _, spec = llama(vocab_size=4096)
    head = nn.Linear(HIDDEN, 4096, bias=False).to(dtype)
    x = torch.randn(TOKENS, HIDDEN, dtype=dtype, requires_grad=True)
    targets = torch.randint(0, 4096, (TOKENS,))
    held = []

    def loss() -> torch.Tensor:
        # transformers returns the logits beside the loss
        held.append(head(x))
        wide = held[0].float()
        return F.cross_entropy(wide, targets)

    measured = peaks(loss, [x, targets, *head.parameters()], x)
    predicted = role_activations("head", RankShare(run=run_of(spec, dtype)), EAGER)
    assert predicted.kept_bytes + predicted.forward_working_bytes == pytest.approx(measured[0], rel=0.05)
    assert predicted.kept_bytes + predicted.backward_working_bytes == pytest.approx(measured[1], rel=0.05)


# Activations of experts, latent and linear attention against what torch saves for backward on transformers' modules.

SPARSE_BATCH, SPARSE_HIDDEN = 2, 64
EXPERTS = {"moe_intermediate_size": 40, "num_experts_per_tok": 4}
PICKED_KEYS = 16
SHAPE = {"hidden_size": SPARSE_HIDDEN, "num_attention_heads": 8, "intermediate_size": 96, "vocab_size": 96}


class FlashStandIn(torch.autograd.Function):
    """Keeps what flash attention keeps: queries, keys, values, output and the log-sum-exp, heads before tokens; and the places of the keys
    that queries see, where an indexer picks them."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, places: torch.Tensor | None
    ) -> torch.Tensor:
        output = query.new_zeros(*query.shape[:-1], value.shape[-1])
        sums = query.new_zeros(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, output, sums, places)
        return output


def flash(
    _: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *__: Any,
    indices: torch.Tensor | None = None,
    **___: Any,
) -> Any:
    return FlashStandIn.apply(query, key, value, indices).transpose(1, 2), None


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


def deepseek_picking() -> tuple[Any, Any, Any]:
    """DeepSeek-V3.2, whose indexer picks the keys that a query sees."""
    from transformers import AttentionInterface, DeepseekV32Config
    from transformers.models.deepseek_v32 import modeling_deepseek_v32 as modeling

    AttentionInterface.register("flash_stand_in", flash)
    config = DeepseekV32Config(
        **{**SHAPE, **EXPERTS},
        n_routed_experts=16,
        n_group=8,
        topk_group=4,
        n_shared_experts=2,
        num_key_value_heads=8,
        q_lora_rank=24,
        kv_lora_rank=20,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=12,
        num_hidden_layers=1,
        index_n_heads=4,
        index_head_dim=16,
        index_topk=PICKED_KEYS,
        mlp_layer_types=["dense"],
        attn_implementation="flash_stand_in",
        experts_implementation="grouped_mm",
    )
    return config, modeling.DeepseekV32DecoderLayer, modeling.DeepseekV32RotaryEmbedding


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
    made_of: tuple[Any, Any, Any],
    dtype: torch.dtype,
    *,
    seq: int = 48,
    modules: str = "",
    profile: str = "eager",
    **inputs: torch.Tensor,
) -> tuple[int, Activations]:
    config, kind, rotary = made_of
    layer = initialised(kind(config, 0), dtype)
    for name in filter(None, modules.split(",")):
        recompute(layer, name)
    x = torch.randn(SPARSE_BATCH, seq, SPARSE_HIDDEN, dtype=dtype, requires_grad=True)
    positions = rotary(config)(x, torch.arange(seq)[None])

    def forward(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return layer(x, position_embeddings=(cos, sin), **inputs)

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
        batch={"global": SPARSE_BATCH, "micro": SPARSE_BATCH, "seq_len": seq},
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


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_deepseek_v32_keeps_every_byte_that_torch_saves(dtype: torch.dtype) -> None:
    mask = torch.ones(SPARSE_BATCH, 1, 48, 48, dtype=torch.bool).tril()
    counted, predicted = counted_and_predicted(deepseek_picking(), dtype, attention_mask=mask)
    assert predicted.kept_bytes == counted
    assert predicted.components["indexer"] == 4 * SPARSE_BATCH * 48 * PICKED_KEYS


@pytest.mark.parametrize("tp", [1, 2])
def test_megatron_keeps_what_trains_the_indexer_whole_on_every_rank(tp: int) -> None:
    config, *_ = deepseek_picking()
    spec = load_model({**config.to_dict(), "architectures": ["DeepseekV32ForCausalLM"]})
    kept = layer_of(spec, BF16, "megatron-te", plan__tp=tp, plan__sp=tp > 1).components["indexer"]
    assert kept == TOKENS * (2 * (4 * 16 + 4 + 2 * 16) + 8 * PICKED_KEYS)


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


# The bytes that torch saves for backward, counted for the modules of which layers are made.


def sizes_of(profile: str = "eager", precision: str = "bf16", model: str = "llama3-8b") -> Sizes:
    batch = {"global": 1, "micro": 1, "seq_len": 512}
    return Sizes(rank=RankShare(run=made(model, precision=precision, batch=batch)), profile=PROFILES[profile])


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_norms_keep_what_their_kind_says(dtype: torch.dtype) -> None:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextRMSNorm

    x = torch.randn(10, 24, dtype=dtype, requires_grad=True)
    precision = "bf16" if dtype is BF16 else "fp32"
    for kind, model in ((LlamaRMSNorm, "llama3-8b"), (Qwen3NextRMSNorm, "qwen3.5-35b-a3b")):
        norm = kind(24).to(dtype)
        assert saved_bytes(lambda norm=norm: norm(x), [norm]) == norm_bytes(sizes_of("eager", precision, model), 10, 24)
    layer_norm = nn.LayerNorm(24).to(dtype)
    # on a CPU mean and 1/σ have the input's dtype, on a GPU they are fp32
    statistics = 8 - 2 * dtype.itemsize
    counted = saved_bytes(lambda: layer_norm(x), [layer_norm]) + 10 * statistics
    assert counted == norm_bytes(sizes_of("eager", precision, "gpt2"), 10, 24)
