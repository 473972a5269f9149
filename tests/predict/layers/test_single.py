"""Flux's blocks of two streams and of one (single.py, streams of attention and MLP) beside plain torch, as diffusers has them."""

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
from predict.memory.estimate import memory_of
from predict.model.spec import LayerKind, ModelSpec
from predict.rank.blocks import single
from predict.rank.share import RankShare
from predict.run.training_run import TrainingRun
from predict.workload.decompose import decompose
from sampling.errors import ConfigError
from tests.predict.layers.saved_bytes import saved_bytes
from tests.predict.memory.counted_layers import PROFILES
from tests.predict.workload.parallel_runs import flops, layer_of, made

HEADS, WIDTH, TEXT, PATCHES, BATCH, JOINT, POOLED, CHANNELS = 4, 32, 512, 64, 2, 24, 20, 16
FLUX: dict[str, Any] = {
    "_class_name": "FluxTransformer2DModel",
    "num_layers": 2,
    "num_single_layers": 3,
    "num_attention_heads": HEADS,
    "attention_head_dim": WIDTH // HEADS,
    "in_channels": CHANNELS,
    "joint_attention_dim": JOINT,
    "pooled_projection_dim": POOLED,
    "guidance_embeds": True,
}


class Qkv(nn.Module):
    """Query, key and value of a stream with norms over each head."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.norm_q, self.norm_k = nn.RMSNorm(WIDTH // HEADS), nn.RMSNorm(WIDTH // HEADS)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q, k, v = (each(x).unflatten(-1, (HEADS, -1)) for each in (self.q, self.k, self.v))
        return self.norm_q(q), self.norm_k(k), v


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)


def plain_norm() -> nn.LayerNorm:
    return nn.LayerNorm(WIDTH, elementwise_affine=False)


def vectors(many: int) -> nn.Sequential:
    return nn.Sequential(nn.SiLU(), nn.Linear(WIDTH, many * WIDTH))


class Stream(nn.Module):
    """The weights that one stream of FluxTransformerBlock has of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.modulation, self.qkv, self.out = vectors(6), Qkv(), nn.Linear(WIDTH, WIDTH)
        self.norm, self.norm2 = plain_norm(), plain_norm()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate="tanh"), nn.Linear(4 * WIDTH, WIDTH))


class DoubleBlock(nn.Module):
    """diffusers, models/transformers/transformer_flux.py, FluxTransformerBlock, without its rotary embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.image = Stream(), Stream()

    def forward(self, text: torch.Tensor, image: torch.Tensor, condition: torch.Tensor) -> tuple[torch.Tensor, ...]:
        streams, given = (self.text, self.image), (text, image)
        made = [each.modulation(condition)[:, None].chunk(6, dim=-1) for each in streams]
        seen = [each.norm(x) * (1 + own[1]) + own[0] for each, x, own in zip(streams, given, made, strict=True)]
        parts = [each.qkv(x) for each, x in zip(streams, seen, strict=True)]
        joined = attended(*(torch.cat(pair, dim=1) for pair in zip(*parts, strict=True)))
        found = []
        for each, x, own, attention in zip(streams, given, made, joined.split([TEXT, PATCHES], dim=1), strict=True):
            after = x + own[2] * each.out(attention)
            found.append(after + own[5] * each.mlp(each.norm2(after) * (1 + own[4]) + own[3]))
        return tuple(found)


class SingleBlock(nn.Module):
    """FluxSingleTransformerBlock there, without its rotary embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.modulation, self.qkv, self.norm = vectors(3), Qkv(), plain_norm()
        self.up, self.out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(5 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        shift, scale, gate = self.modulation(condition)[:, None].chunk(3, dim=-1)
        seen = self.norm(x) * (1 + scale) + shift
        inner = F.gelu(self.up(seen), approximate="tanh")
        return x + gate * self.out(torch.cat([attended(*self.qkv(seen)), inner], dim=2))


class Ends(nn.Module):
    """What FluxTransformer2DModel has before and after its blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.text = nn.Linear(CHANNELS, WIDTH), nn.Linear(JOINT, WIDTH)
        of_times = [nn.Linear(256, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(256, WIDTH), nn.Linear(WIDTH, WIDTH)]
        self.conditions = nn.ModuleList([*of_times, nn.Linear(POOLED, WIDTH), nn.Linear(WIDTH, WIDTH)])
        self.modulation, self.last = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, CHANNELS)


def count(*modules: nn.Module) -> int:
    return sum(weight.numel() for module in modules for weight in module.parameters())


def run_of(model: ModelSpec | None = None, **settings: Any) -> TrainingRun:
    batch = {"global": BATCH, "micro": BATCH, "seq_len": TEXT + PATCHES}
    return made(model or load_model(FLUX), **{"precision": "fp32", "batch": batch, **settings})


def block_of(kind: LayerKind) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A block of a kind, and what it reads; the condition, which all blocks share, last."""
    text, image = (torch.randn(BATCH, length, WIDTH, requires_grad=True) for length in (TEXT, PATCHES))
    condition = torch.randn(BATCH, WIDTH, requires_grad=True)
    if kind.has_feed_forward:
        return DoubleBlock(), (text, image, condition)
    return SingleBlock(), (torch.randn(BATCH, TEXT + PATCHES, WIDTH, requires_grad=True), condition)


BLOCKS = pytest.mark.parametrize("place", [0, 4], ids=["two-streams", "one-stream"])


def test_parameters_are_those_of_plain_torch() -> None:
    blocks = [*(DoubleBlock() for _ in range(2)), *(SingleBlock() for _ in range(3))]
    assert load_model(FLUX).parameters == count(Ends(), *blocks)
    unguided = load_model({**FLUX, "guidance_embeds": False})
    assert load_model(FLUX).parameters - unguided.parameters == 257 * WIDTH + WIDTH * (WIDTH + 1)


@BLOCKS
def test_a_block_has_the_parameters_and_flops_that_torch_counts(place: int) -> None:
    run = run_of()
    kind = run.model.kinds()[place]
    block, given = block_of(kind)
    assert run.model.layer_parameters_of(kind) == count(block)
    with torch.no_grad(), FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        block(*given)
    counted = counter.get_total_flops()
    alike = run.model.kinds().count(kind)
    parts = forward_parts(run.model, {TEXT + PATCHES: BATCH}, mtp=False)
    assert sum(part.forward for part in parts if part.layer == kind.name) == alike * counted
    assert flops(single(layer_of(run, place).forward)) == counted


@BLOCKS
def test_a_block_keeps_every_byte_that_torch_saves(place: int) -> None:
    run = run_of()
    kind = run.model.kinds()[place]
    block, given = block_of(kind)
    own = layer_activations(RankShare(run=run), kind, PROFILES["eager"], recompute="none")
    assert own.kept_without_rotary_bytes == saved_bytes(lambda: block(*given), [block]) - given[-1].nbytes


def test_a_step_has_the_flops_of_its_book() -> None:
    run = run_of()
    parts = forward_parts(run.model, {TEXT + PATCHES: BATCH}, mtp=False)
    (rank,) = decompose(run)
    assert flops(rank.chunks[0].forward) == sum(part.forward for part in parts)


def test_each_stream_has_adapters_of_its_own() -> None:
    adapters = {"kind": "lora", "rank": 4, "targets": "q_proj"}
    of_both, of_one = (
        memory_of(run_of(model, adapters=adapters)).worst
        for model in (load_model(FLUX), replace(load_model(FLUX), streams=1))
    )
    weights = 2 * 4 * 2 * WIDTH
    assert of_both.optimizer - of_one.optimizer == 8 * weights


def test_more_patches_take_longer() -> None:
    times = [
        estimate(run_of(batch={"global": BATCH, "micro": BATCH, "seq_len": TEXT + patches})).step_time.median_us
        for patches in (PATCHES, 16 * PATCHES)
    ]
    assert times[0] < times[1]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({**FLUX, "num_single_layers": -1}, "num_single_layers"),
        ({**FLUX, "guidance_embeds": "x"}, "guidance_embeds"),
        ({**FLUX, "attention_head_dim": None}, "attention_head_dim"),
    ],
)
def test_what_cannot_be_read_is_refused(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        load_model(changed)
