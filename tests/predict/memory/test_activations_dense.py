"""Activations of dense layers against what torch saves for backward on transformers' own modules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from predict.huggingface.config_json import load_model
from predict.memory.activations import Activations, layer_activations
from predict.model.spec import DENSE, ModelSpec
from predict.rank.share import RankShare
from predict.run.training_run import TrainingRun
from tests.predict.memory.counted_layers import PROFILES, role_activations
from tests.predict.memory.saved_bytes import BF16, FP32, peaks, saved_bytes
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


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_torch_compile_keeps_about_as_much_of_an_unfused_gpt_layer(dropout: float) -> None:
    layer = PlainGpt(dropout).to(BF16)
    x = torch.randn(BATCH, SEQ, HIDDEN, dtype=BF16, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager_decomp_partition")
    compiled(x)
    settings = {"execution__attention": "unfused", "execution__dropout": bool(dropout)}
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
