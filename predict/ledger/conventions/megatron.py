"""Megatron-LM's convention: `num_floating_point_operations` of megatron/training/training.py (commit 001b00c2).

Departures from an exact count, kept because Megatron-LM reports them:

- half of a sequence's square is counted for attention, in sliding layers too, whatever their window;
- the router and the gate of shared experts are left out;
- the recurrence of Gated DeltaNet is 4·dᵥ² products per token and value head, whatever the width of the keys;
- where attention compresses, as DeepSeek's does, each norm of a compressed vector counts as a product, and so do three norms per layer of multi-token prediction;
- with linear layers at a fixed interval, a layer of multi-token prediction is full or linear by that interval.

The vocabulary is that of config.json: padding to a multiple for tensor parallelism is not stated there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from predict.layers.linear import LinearAttention
from predict.ledger.conventions.inputs import read_spec
from predict.model.spec import ModelSpec


def megatron(config: Mapping[str, Any], lengths: Sequence[int]) -> float:
    """FLOPs as Megatron-LM counts them, one sequence at a time: its own formula takes a batch of equal lengths.

    Multi-token prediction is counted where config.json has it. Raises ConfigError for a model that is not modelled.
    """
    return megatron_of(read_spec(config, lengths, convention="Megatron"), lengths)


def megatron_of(spec: ModelSpec, lengths: Sequence[int]) -> float:
    """`megatron` by the model's shape."""
    linear_layers = _linear_layers(spec)
    full_layers = spec.layers + spec.mtp_layers - linear_layers
    products = _feed_forward(spec) + spec.vocab * spec.hidden * (spec.mtp_layers + 1)
    products += full_layers * _projections(spec)
    products += spec.mtp_layers * (3 * spec.hidden + 2 * spec.hidden**2)
    linear = next((mixer for mixer in spec.mixers if isinstance(mixer, LinearAttention)), None)
    if linear is not None:
        products += linear_layers * _delta_net(spec, linear)
    squares = sum(length * length for length in lengths)
    return 6.0 * sum(lengths) * products + 3.0 * squares * full_layers * spec.attention.score_width(spec)


def _feed_forward(spec: ModelSpec) -> int:
    """Products per token of all dense layers and mixtures; an expert without a gate has two matrices."""
    kinds = [*spec.kinds(), *[spec.mtp_kind] * spec.mtp_layers]
    sparse = sum(kind.sparse for kind in kinds)
    matrices = 3 if spec.gated else 2
    widths = (len(kinds) - sparse) * spec.ffn
    if spec.experts is not None:
        widths += sparse * (spec.experts.topk * spec.experts.ffn + spec.experts.shared_ffn)
    return matrices * spec.hidden * widths


def _projections(spec: ModelSpec) -> int:
    """Products per token of the projections of one layer of attention."""
    return spec.attention.elements_per_token(spec) + spec.attention.compressed_width


def _delta_net(spec: ModelSpec, linear: LinearAttention) -> int:
    """Products per token of one layer of Gated DeltaNet: into it, convolution, recurrence, out of it."""
    into = spec.hidden * (2 * linear.key_width + 2 * linear.value_width + 2 * linear.value_heads)
    recurrence = linear.value_heads * linear.value_dim**2 * 4
    return into + linear.conv * linear.conv_width + recurrence + spec.hidden * linear.value_width


def _linear_layers(spec: ModelSpec) -> int:
    """Linear layers, those of multi-token prediction counted as full unless every n-th layer is full and they are not one."""
    linear = [kind.mixer == "linear" for kind in spec.kinds()]
    interval = linear.index(False) + 1 if False in linear else 0
    if not interval or linear != [(layer + 1) % interval != 0 for layer in range(spec.layers)]:
        return sum(linear)
    return sum((layer + 1) % interval != 0 for layer in range(spec.layers + spec.mtp_layers))
