"""Multiply-accumulates of torch's matrix products, from the shapes of what they read and write.

They are half of what `torch.utils.flop_counter` counts, which a test compares; causal attention counts whole, as there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from predict.bounds.einsum import einsum_macs
from predict.bounds.graph import Tensor

Tensors = Sequence[Tensor]
Arguments = Sequence[Any]
"""The arguments of a call, its tensors among them."""


def _inner(reads: Tensors, out: Tensor) -> int:
    return out.elements * reads[0].shape[-1]


def _second(reads: Tensors, out: Tensor) -> int:
    """Products of `addmm` and its like, whose first tensor is added."""
    return out.elements * reads[1].shape[-1]


def _summed_batch(reads: Tensors, out: Tensor) -> int:
    return math.prod(reads[1].shape) * out.shape[-1]


def _convolution(reads: Tensors, out: Tensor) -> int:
    return out.elements * math.prod(reads[1].shape[1:])


def _transposed(reads: Tensors, out: Tensor) -> int:
    return reads[0].elements * math.prod(reads[1].shape[1:])


def _recurrent(reads: Tensors, out: Tensor) -> int:
    """Each weight matrix once for each step and sequence."""
    steps = math.prod(reads[0].shape[:-1])
    return steps * sum(tensor.elements for tensor in reads[1:] if len(tensor.shape) == 2)


def _bilinear(reads: Tensors, out: Tensor) -> int:
    return math.prod(out.shape[:-1]) * reads[2].elements


def _outer(reads: Tensors, out: Tensor) -> int:
    return out.elements


def _attention(reads: Tensors, out: Tensor) -> int:
    query, key, value = reads[:3]
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    return pairs * (query.shape[-1] + value.shape[-1])


def _grouped(reads: Tensors, out: Tensor) -> int:
    """Rows of one operand, each with the matrix of its group; or the columns of each group, where the result is a stack."""
    left, right = reads[:2]
    groups = left.shape[0] if len(left.shape) > len(right.shape) else 1  # each column meets its own group's matrix
    return left.elements // groups * right.shape[-1]


PRODUCTS: Mapping[str, Callable[[Tensors, Tensor], int]] = {
    **dict.fromkeys(("linear", "matmul", "mm", "bmm", "mv", "dot", "vdot", "_scaled_mm", "_int_mm"), _inner),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _second),
    "addbmm": _summed_batch,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
    **dict.fromkeys(("_grouped_mm", "grouped_mm"), _grouped),
    "bilinear": _bilinear,
    "outer": _outer,
    "scaled_dot_product_attention": _attention,
}


def macs_of(name: str, reads: Tensors, out: Tensor, arguments: Arguments) -> int:
    """Multiply-accumulates of an operation; 0 for what is no matrix product."""
    if name == "einsum":
        return einsum_macs(arguments[0], [tensor.shape for tensor in reads])
    if name == "convolution":
        return (_transposed if arguments[6] else _convolution)(reads, out)
    return PRODUCTS[name](reads, out) if name in PRODUCTS else 0


def skipped_share(name: str, reads: Tensors, *, causal: bool) -> float:
    """The share of attention's pairs of a query and a key that a causal mask hides; torch aligns the first query with the first key."""
    if name != "scaled_dot_product_attention" or not causal:
        return 0.0
    queries, keys = reads[0].shape[-2], reads[1].shape[-2]
    square = min(queries, keys)
    return 1 - (square * (square + 1) / 2 + (queries - square) * keys) / (queries * keys)
