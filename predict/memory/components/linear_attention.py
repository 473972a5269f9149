"""Linear attention: Gated DeltaNet (Yang et al., arXiv 2412.06464)."""

from __future__ import annotations

from predict.memory.components.core_attention import CORE
from predict.memory.components.norms import normed_input
from predict.memory.components.saved_tensors import Saved, SavedTensors
from predict.memory.components.sizes import FP32, Sizes
from predict.model.parts.linear_attention import LinearAttention

CHUNK = 64
"""Tokens per chunk of the gated delta rule, in transformers 5.23 and flash-linear-attention."""


def saved_tensors(sizes: Sizes, linear: LinearAttention) -> Saved:
    recurrence = _flash if sizes.profile.flash_linear else _in_torch
    return (*normed_input(sizes, "qkv", is_module=False), *recurrence(sizes, linear))


def _in_torch(sizes: Sizes, linear: LinearAttention) -> Saved:
    """transformers' torch fallback, byte-equal in bf16 where 64 divides S: B·S[32·vh·kd + 30·vh·vd + 1318·vh] +
    e·B·Dc(2S + conv − 1) + 8·vh + (B·S/64)(4·vh + 4·vh·kd·vd) + 4096, with Dc channels of the convolution."""
    tokens, batch, tp = sizes.tokens, sizes.rank.run.batch.micro, sizes.tp
    heads, keys, values = linear.value_heads // tp, linear.key_dim, linear.value_dim
    output = sizes.item * tokens * heads * values
    per_token = 32 * heads * keys + 30 * heads * values + 1318 * heads
    states = tokens / CHUNK * FP32 * heads * (1 + keys * values)
    pairs = FP32 * CHUNK * heads * tokens
    convolved = sizes.item * linear.conv_width // tp * (2 * tokens + batch * (linear.conv - 1))
    return (
        SavedTensors(component="qkv", kept=convolved),
        SavedTensors(
            component=CORE,
            kept=tokens * per_token - output + states + 8 * heads + CHUNK**2,
            in_forward=pairs,
            in_backward=2 * pairs,
        ),
        SavedTensors(component="proj", kept=output, in_backward=output),
    )


def _flash(sizes: Sizes, linear: LinearAttention) -> Saved:
    """flash-linear-attention (fla/ops/gated_delta_rule/chunk.py): queries and keys normed with their fp32 norms, values, decay,
    step and the [64, 64] system of each chunk; the backward computes the states again. The convolution keeps its input, the
    gated norm its output and gate. From the source, not counted."""
    tokens, item, tp = sizes.tokens, sizes.item, sizes.tp
    heads, key_heads = linear.value_heads // tp, max(1, linear.key_heads // tp)
    keys, values = key_heads * linear.key_dim, heads * linear.value_dim
    mixed, output = item * tokens * (2 * keys + values), item * tokens * values
    small = tokens * (FP32 * heads + item * heads + 2 * FP32 * key_heads + 2 * FP32 * heads)
    return (
        SavedTensors(component="qkv", kept=mixed, in_forward=mixed),
        SavedTensors(
            component=CORE,
            kept=mixed + item * tokens * heads * CHUNK + small,
            in_forward=2 * output,
            in_backward=2 * mixed + item * tokens * heads * (linear.key_dim * linear.value_dim) / CHUNK,
        ),
        SavedTensors(
            component="proj",
            kept=2 * output + FP32 * tokens * heads + sizes.input_item * tokens * values,
            in_backward=2 * output,
        ),
    )
