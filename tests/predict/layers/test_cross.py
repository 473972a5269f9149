"""Diffusion transformers (modulation.py, cross.py, patches.py) beside plain torch: DiT's block and Wan's, as their own code has them."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from predict import estimate
from predict.huggingface.config_json import load_model
from predict.ledger.conventions import forward_parts
from predict.memory.activations import layer_activations
from predict.model.spec import ModelSpec
from predict.rank.blocks import single
from predict.rank.share import RankShare
from predict.run.training_run import TrainingRun
from predict.serving.rules import placement_faults
from predict.serving.server import ServerPlacement
from predict.workload.decompose import decompose
from sampling.errors import ConfigError
from tests.predict.layers.saved_bytes import saved_bytes
from tests.predict.memory.counted_layers import PROFILES
from tests.predict.workload.parallel_runs import flops, layer_of, made

HEADS, WIDTH, FFN, TEXT, TOKENS, BATCH = 4, 32, 48, 16, 64, 2
DIT: dict[str, Any] = {
    "_class_name": "DiTTransformer2DModel",
    "num_layers": 2,
    "num_attention_heads": HEADS,
    "attention_head_dim": WIDTH // HEADS,
    "in_channels": 4,
    "out_channels": 8,
    "num_embeds_ada_norm": 10,
}
LLAMA: dict[str, Any] = {
    "model_type": "mllama",
    "text_config": {
        "model_type": "mllama_text_model",
        "vocab_size": 96,
        "hidden_size": WIDTH,
        "intermediate_size": FFN,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "cross_attention_layers": [1],
        "pad_token_id": 0,
    },
    "vision_config": {
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_global_layers": 1,
        "attention_heads": 2,
        "image_size": 8,
        "patch_size": 4,
        "intermediate_layers_indices": [0],
        "vision_output_dim": 48,
    },
}
WAN: dict[str, Any] = {
    "_class_name": "WanTransformer3DModel",
    "num_layers": 2,
    "num_attention_heads": HEADS,
    "attention_head_dim": WIDTH // HEADS,
    "ffn_dim": FFN,
    "in_channels": 16,
    "text_dim": 24,
    "text_len": TEXT,
}


class Attention(nn.Module):
    """Over `context`, with norms over all heads of queries and keys where `normed`."""

    def __init__(self, *, normed: bool) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norms = nn.ModuleList([nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)] if normed else [nn.Identity()] * 2)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        q, k, v = self.norms[0](self.q(x)), self.norms[1](self.k(context)), self.v(context)
        q, k, v = (each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in (q, k, v))
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


def mlp(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, width), nn.GELU(approximate="tanh"), nn.Linear(width, WIDTH))


def plain_norm() -> nn.LayerNorm:
    return nn.LayerNorm(WIDTH, elementwise_affine=False)


class DitBlock(nn.Module):
    """facebookresearch/DiT, models.py, DiTBlock."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = plain_norm(), plain_norm()
        self.attention, self.mlp = Attention(normed=False), mlp(4 * WIDTH)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(WIDTH, 6 * WIDTH))

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        shift, scale, gate, shift2, scale2, gate2 = self.modulation(condition)[:, None].chunk(6, dim=-1)
        seen = self.norm1(x) * (1 + scale) + shift
        x = x + gate * self.attention(seen, seen)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class WanBlock(nn.Module):
    """diffusers, models/transformers/transformer_wan.py, WanTransformerBlock, without its rotary embedding. The table is in fp32."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = plain_norm(), plain_norm(), nn.LayerNorm(WIDTH)
        self.own, self.cross, self.mlp = Attention(normed=True), Attention(normed=True), mlp(FFN)
        self.table = nn.Parameter(torch.randn(1, 6, WIDTH))

    def forward(self, x: torch.Tensor, condition: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        shift, scale, gate, shift2, scale2, gate2 = (self.table + condition).chunk(6, dim=1)
        seen = (self.norm1(x.float()) * (1 + scale) + shift).type_as(x)
        x = (x.float() + gate * self.own(seen, seen)).type_as(x)
        x = x + self.cross(self.norm3(x.float()).type_as(x), text)
        inner = self.mlp((self.norm2(x.float()) * (1 + scale2) + shift2).type_as(x))
        return (x.float() + gate2 * inner.float()).type_as(x)


class Ends(nn.Module):
    """What both have before and after their blocks: patches, time, class or text, and the last norm with its product."""

    def __init__(self, pixels: int, outputs: int, *, classes: int = 0, text: int = 0) -> None:
        super().__init__()
        self.patches = nn.Linear(pixels, WIDTH)
        self.time = nn.Sequential(nn.Linear(256, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.last = nn.Linear(WIDTH, outputs)
        if classes:
            self.classes, self.modulation = nn.Embedding(classes + 1, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        else:
            self.text = nn.Sequential(nn.Linear(text, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
            self.shared, self.table = nn.Linear(WIDTH, 6 * WIDTH), nn.Parameter(torch.zeros(1, 2, WIDTH))


def count(*modules: nn.Module) -> int:
    return sum(weight.numel() for module in modules for weight in module.parameters())


def run_of(config: dict[str, Any], **settings: Any) -> TrainingRun:
    batch = {"global": BATCH, "micro": BATCH, "seq_len": TOKENS}
    return made(load_model(config), precision="fp32", batch=batch, **settings)


def kept(model: ModelSpec, run: TrainingRun) -> float:
    """Bytes that one layer of each kind keeps, without rotary tables."""
    rank, kinds = RankShare(run=run), dict.fromkeys(model.kinds())
    own = [layer_activations(rank, kind, PROFILES["eager"], recompute="none") for kind in kinds]
    return sum(each.kept_without_rotary_bytes for each in own)


def test_parameters_are_those_of_plain_torch() -> None:
    assert load_model(DIT).parameters == count(Ends(4 * 4, 4 * 8, classes=10), DitBlock(), DitBlock())
    assert load_model(WAN).parameters == count(Ends(4 * 16, 4 * 16, text=24), WanBlock(), WanBlock())


def block_of(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...], int]:
    """A block, what it reads, and the bytes of that which all blocks share."""
    x, text = (torch.randn(BATCH, length, WIDTH, requires_grad=True) for length in (TOKENS, TEXT))
    if name == "dit":
        condition = torch.randn(BATCH, WIDTH, requires_grad=True)
        return DitBlock(), (x, condition), condition.nbytes
    return WanBlock(), (x, torch.randn(BATCH, 6, WIDTH, requires_grad=True), text), text.nbytes


BLOCKS = pytest.mark.parametrize(("name", "config"), [("dit", DIT), ("wan", WAN)], ids=["dit", "wan"])


@BLOCKS
def test_a_block_keeps_every_byte_that_torch_saves(name: str, config: dict[str, Any]) -> None:
    block, given, shared = block_of(name)
    assert kept(load_model(config), run_of(config)) == saved_bytes(lambda: block(*given), [block]) - shared


def test_a_block_in_16_bits_keeps_what_is_computed_in_fp32() -> None:
    """But for norms of queries and keys, which are another kernel's in 16 bits."""
    block = WanBlock().to(torch.bfloat16)
    block.norm3, block.table = block.norm3.float(), nn.Parameter(block.table.float())
    x, text = (torch.randn(BATCH, length, WIDTH, dtype=torch.bfloat16, requires_grad=True) for length in (TOKENS, TEXT))
    condition = torch.randn(BATCH, 6, WIDTH, requires_grad=True)
    block.own.norms = block.cross.norms = nn.ModuleList([nn.Identity()] * 2)
    model = replace(load_model(WAN), qk_norm=False, qk_norm_all_heads=False)
    run = made(model, precision="bf16", batch={"global": BATCH, "micro": BATCH, "seq_len": TOKENS})
    assert kept(model, run) == saved_bytes(lambda: block(x, condition, text), [block]) - text.nbytes
    one_dtype = replace(model, modulates_in_fp32=False)
    assert kept(one_dtype, replace(run, model=one_dtype)) < kept(model, run)


@BLOCKS
def test_a_block_has_the_flops_that_torch_counts(name: str, config: dict[str, Any]) -> None:
    """Those of the book, and of the calls that are priced."""
    block, given, _ = block_of(name)
    model, run = load_model(config), run_of(config)
    with torch.no_grad(), FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        block(*given)
    counted = counter.get_total_flops()
    parts = forward_parts(model, {TOKENS: BATCH}, mtp=False)
    assert sum(part.forward for part in parts if part.layer) == 2 * counted
    of_block = range(len(model.kinds()) // 2)
    priced = sum(flops(single(layer_of(run, layer).forward)) for layer in of_block)
    assert priced == counted


def images_of_llama() -> tuple[TrainingRun, torch.Tensor, nn.Module]:
    """A run over images, their tokens, and the layers of its text as transformers has them."""
    pytest.importorskip("transformers", reason="transformers is not installed: nothing to compare with")
    from transformers.models.mllama import configuration_mllama, modeling_mllama

    run = run_of(LLAMA, vision={"images": 2})
    config = configuration_mllama.MllamaTextConfig(**LLAMA["text_config"])
    config._attn_implementation = "sdpa"
    tokens = run.model.mixer(run.model.kinds()[1]).reach(run.model, run.model.kinds()[1])
    images = torch.randn(BATCH, tokens, WIDTH, requires_grad=True)
    return run, images, modeling_mllama.MllamaCrossAttentionDecoderLayer(config, 1)


def test_a_layer_that_attends_to_images_is_that_of_transformers() -> None:
    """Parameters, FLOPs of the book and of the calls, and the bytes kept, without the images that all layers share."""
    run, images, layer = images_of_llama()
    kind = run.model.kinds()[1]
    assert kind.name == "cross_dense_gated"
    assert run.model.layer_parameters_of(kind) == count(layer)
    x = torch.randn(BATCH, TOKENS, WIDTH, requires_grad=True)
    given: tuple[Any, ...] = (x, images, None, None, None)
    with torch.no_grad(), FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        layer(*given)
    parts = forward_parts(run.model, {TOKENS: BATCH}, mtp=False)
    assert sum(part.forward for part in parts if part.layer == kind.name) == counter.get_total_flops()
    assert flops(single(layer_of(run, 1).forward)) == counter.get_total_flops()
    own = layer_activations(RankShare(run=run), kind, PROFILES["eager"], recompute="none").kept_without_rotary_bytes
    assert own == saved_bytes(lambda: layer(*given), [layer]) - images.nbytes


def test_a_step_has_the_flops_of_its_book() -> None:
    """All of forward, with what comes before and after the blocks."""
    run = run_of(WAN)
    parts = forward_parts(run.model, {TOKENS: BATCH}, mtp=False)
    (rank,) = decompose(run)
    assert flops(rank.chunks[0].forward) == sum(part.forward for part in parts)


def test_pixels_have_no_gradient() -> None:
    run = run_of(DIT)
    pixels, scores = 2 * BATCH * TOKENS * 16 * WIDTH, 2 * BATCH * TOKENS**2 * WIDTH
    (rank,) = decompose(run)
    forward, backward = (flops(getattr(rank.chunks[0], half)) for half in ("forward", "backward"))
    # attention's backward makes the scores of both layers again
    assert backward == 2 * forward - pixels + 2 * scores


def test_longer_texts_take_longer_and_keep_more() -> None:
    times, bytes_kept = [], []
    for text in (16, 64):
        run = run_of({**WAN, "text_len": text})
        times.append(estimate(run).step_time.median_us)
        bytes_kept.append(kept(run.model, run))
    assert times[0] < times[1]
    assert bytes_kept[0] < bytes_kept[1]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({**WAN, "image_dim": 1280}, "image_dim: 1280 is not modelled here"),
        ({**WAN, "patch_size": [1, 0, 2]}, "patch_size"),
        ({**WAN, "text_len": 0}, "text_len"),
        ({**DIT, "norm_type": "layer_norm"}, "norm_type: 'layer_norm' is not modelled here"),
        ({**DIT, "attention_head_dim": None}, "attention_head_dim"),
    ],
)
def test_what_is_not_modelled_is_refused(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        load_model(changed)


def test_servers_and_plain_torch_have_none() -> None:
    model = load_model(DIT)
    with pytest.raises(ConfigError, match="reads patches"):
        made(model, execution={"framework": "torch"})
    assert any("encoder" in fault.problem for fault in placement_faults(model, ServerPlacement(tp=1, dp=1, pp=1)))
