"""Calls that plain dense layers do not make: mixtures of experts, other attention, other precisions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sampling.arithmetic.expert_rows import BALANCED, POWER_LAW
from sampling.call import Call
from sampling.cells.layer import DenseLayer
from sampling.cells.moe_layer import MoELayer
from sampling.choosing.ranges import VariantRanges
from sampling.operators.attention import Attention
from sampling.operators.experts import ExpertMLP
from sampling.operators.gemm import Gemm
from sampling.operators.linear_attention import GatedDelta
from sampling.operators.streaming import Dropout, Stream
from sampling.operators.unfused_attention import UnfusedAttention

DIMENSIONS = 6
"""Dimensions of the unit cube: experts, topk, width of an expert, skew, head size, window."""
LATENT = (192, 128)
"""Head sizes of keys and values in multi-head latent attention (DeepSeek-V3, arXiv 2412.19437, section 4.2)."""
SCORES_BYTES = 2**33
"""Largest score matrix that unfused attention is drawn with; nobody runs it on more."""


def variant_calls(layer: DenseLayer, point: Sequence[float], index: int, ranges: VariantRanges) -> tuple[Call, ...]:
    """The calls at a point of the unit cube, for models as large as `layer`; kernels take turns by `index`."""
    mixture = _mixture(layer, point, index, ranges)
    calls: list[Call] = [mixture, *_operators_of(mixture), *_attentions(layer, point, index, ranges)]
    calls += _unfused(layer, ranges.compiled)
    calls += _memory_passes(layer)
    calls += [_gemm(layer, dtype) for dtype in ranges.dtypes]
    if ranges.compiled:
        calls += [replace(layer, compiled=True), replace(mixture, compiled=True)]
    return tuple(dict.fromkeys(calls))


def _mixture(layer: DenseLayer, point: Sequence[float], index: int, ranges: VariantRanges) -> MoELayer:
    experts = 2 ** round(_log_between(ranges.experts, point[0]))
    topk = min(experts, round(2 ** _log_between(ranges.topk, point[1])))
    # all experts of a token together are about as wide as the dense layer's MLP, or half of it
    inter = max(32, round(layer.ffn / topk * (0.5 + point[2]) / 32) * 32)
    skew = ranges.skews[int(point[3] * len(ranges.skews))]
    return MoELayer.like(
        layer,
        inter=inter,
        experts=experts,
        topk=topk,
        distribution=f"{POWER_LAW}{skew:g}" if skew else BALANCED,
        shared_inter=inter * (index % 2),
    )


def _operators_of(mixture: MoELayer) -> Iterator[Call]:
    """The calls that dense layers lack, and the GEMMs that experts are made of."""
    for call, _ in mixture.mixture_calls():
        yield call
        if isinstance(call, ExpertMLP):
            yield from (operator.call for operator in call.parts("forward"))


def _attentions(layer: DenseLayer, point: Sequence[float], index: int, ranges: VariantRanges) -> Iterator[Call]:
    head_dim = ranges.head_dims[int(point[4] * len(ranges.head_dims))]
    heads = max(2, round(layer.hidden / head_dim / 2) * 2)
    shape = Attention(
        dtype=layer.dtype,
        batch=layer.batch,
        seq_len=layer.seq_len,
        heads=heads,
        kv_heads=heads // (1, 2)[index % 2],
        head_dim=head_dim,
        causal=True,
    )
    yield shape
    # a window of more than half the sequence hides little
    low, high = (min(size, layer.seq_len // 2) for size in ranges.windows)
    yield replace(shape, window=round(2 ** _log_between((low, high), point[5])))
    if ranges.kernels:
        yield replace(shape, kernel=ranges.kernels[index % len(ranges.kernels)])
    key, value = (min(size, 2 * max(ranges.head_dims)) for size in LATENT)
    yield replace(shape, kv_heads=heads, head_dim=key, value_dim=value if value != key else 0)
    yield GatedDelta(
        dtype=layer.dtype,
        batch=layer.batch,
        seq_len=layer.seq_len,
        heads=heads // 2,
        value_heads=heads,
        head_dim=head_dim,
        value_dim=head_dim,
    )


def _unfused(layer: DenseLayer, compiled: bool) -> Iterator[Call]:
    """Attention with a plain and, where there is a compiler, a fused softmax, and the operators of each."""
    rows = max(1, min(layer.batch, int(SCORES_BYTES / (layer.item_bytes * layer.heads * layer.seq_len**2))))
    for fused_softmax in (False, True)[: 1 + compiled]:
        whole = UnfusedAttention(
            dtype=layer.dtype,
            batch=rows,
            seq_len=layer.seq_len,
            heads=layer.heads,
            head_dim=layer.head_dim,
            fused_softmax=fused_softmax,
        )
        yield whole
        yield from (operator.call for operator in whole.parts("forward"))


def _memory_passes(layer: DenseLayer) -> Iterator[Call]:
    """Passes over memory that training makes besides the layers' own work."""
    yield Dropout(dtype=layer.dtype, count=layer.batch * layer.seq_len * layer.hidden)
    yield Stream(dtype=layer.dtype, size_bytes=2 * layer.item_bytes * layer.hidden * layer.ffn)


def _gemm(layer: DenseLayer, dtype: str) -> Gemm:
    return Gemm(dtype=dtype, m=layer.batch * layer.seq_len, n=layer.ffn, k=layer.hidden)


def _log_between(low_high: Sequence[int], share: float) -> float:
    """log2 of the size that lies `share` of the way from low to high on a log scale."""
    low, high = (math.log2(size) for size in low_high)
    return low + (high - low) * share
