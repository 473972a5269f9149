"""Torch's operations under the names that they have in an exported graph: what they do to memory, and their multiply-accumulates.

Multiply-accumulates come from the shapes of what a product reads and writes. They are half of what `torch.utils.flop_counter` counts,
which a test compares; causal attention counts whole, as there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from predict.bounds.einsum import einsum_macs
from predict.bounds.graph import Kind, Tensor

Tensors = Sequence[Tensor]
Arguments = Sequence[Any]
"""The arguments of a call, its tensors among them."""


ATTENTION = "scaled_dot_product_attention"


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
    ATTENTION: _attention,
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
    if name != ATTENTION or not causal:
        return 0.0
    queries, keys = reads[0].shape[-2], reads[1].shape[-2]
    square = min(queries, keys)
    return 1 - (square * (square + 1) / 2 + (queries - square) * keys) / (queries * keys)


NAMES: Mapping[Kind, str] = {
    "view": """
        view reshape _unsafe_view contiguous transpose permute t numpy_T mT mH expand expand_as broadcast_to squeeze
        unsqueeze flatten unflatten ravel chunk split unsafe_chunk split_with_sizes unsafe_split tensor_split unbind
        alias detach detach_ movedim moveaxis swapaxes swapdims view_as reshape_as diagonal view_as_real
        view_as_complex lift_fresh_copy adjoint unfold as_strided real imag lift_fresh _reshape_alias getitem dropout
        hsplit
    """,
    "slice": "slice select narrow",
    "copy": """
        to _to_copy clone copy type_as cat concat concatenate stack hstack vstack pad constant_pad_nd roll flip repeat
        repeat_interleave tile pixel_shuffle pixel_unshuffle reflection_pad2d replication_pad2d reflection_pad1d
        replication_pad1d rot90
    """,
    "row": """
        softmax log_softmax _softmax _log_softmax _safe_softmax layer_norm rms_norm group_norm batch_norm
        instance_norm native_layer_norm native_group_norm mean sum amax amin max min var std var_mean std_mean norm
        linalg_vector_norm logsumexp prod argmax argmin any all cross_entropy_loss nll_loss nll_loss_nd mse_loss
        cumsum cumprod cummax nansum
    """,
    "gather": "embedding index_select index gather take_along_dim take embedding_bag",
    "update": """
        index_copy index_put scatter scatter_add scatter_reduce slice_scatter select_scatter index_add index_fill
        masked_scatter _index_put_impl put
    """,
    "other": """
        sort topk argsort max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d
        adaptive_avg_pool2d adaptive_max_pool2d max_pool2d_with_indices fft_fft fft_rfft upsample_nearest2d
        upsample_bilinear2d upsample_bicubic2d interpolate searchsorted bincount histc fft_irfft fft_ifft multinomial
        grid_sampler linalg_inv linalg_cholesky tril_indices
    """,
}
"""Names by kind, beside those of products; every other operation is elementwise, or makes a tensor from nothing."""
KIND_OF: Mapping[str, Kind] = {
    **{name: kind for kind, names in NAMES.items() for name in names.split()},
    **dict.fromkeys((*PRODUCTS, "einsum", "convolution"), "product"),
    ATTENTION: "attention",
}
LOSSES = ("cross_entropy_loss", "nll_loss", "nll_loss_nd")
"""Losses over classes, which are the second dimension."""
WRITES_A_PART = "copy_"
"""`copy_` onto a slice, which is how `x[:, 0] = y` is exported."""


def kind_of(name: str, reads: Sequence[Tensor], *, trains: bool) -> Kind:
    """The kind of an operation; `trains` is whether a batch normalization computes its statistics here."""
    if not reads:
        return "made"
    if name == WRITES_A_PART:
        return "update"
    if name == "batch_norm" and not trains:
        return "pointwise"
    if name == "dropout" and not trains:
        return "view"
    if name.endswith("_like") or name.startswith("new_") or name in ("arange", "zero_", "fill_"):
        return "made"
    return KIND_OF.get(name.rstrip("_"), "pointwise")


def row_of(name: str, reads: Sequence[Tensor], writes: Sequence[Tensor], dims: Sequence[int]) -> int:
    """Elements that a reduction or a normalization takes together; `dims` are the dimensions that it names, none for all."""
    first = reads[0]
    if name == "batch_norm":
        return first.elements // max(1, first.shape[1])
    if name in ("layer_norm", "rms_norm"):
        return reads[1].elements if len(reads) > 1 else first.shape[-1]
    if name in LOSSES and len(first.shape) > 1:
        return first.shape[1]
    if name in ("group_norm", "instance_norm"):
        return first.elements // max(1, first.shape[0])
    taken = 1
    for dim in dims:
        taken *= first.shape[dim] if first.shape else 1
    return taken if dims else first.elements // max(1, writes[0].elements)
