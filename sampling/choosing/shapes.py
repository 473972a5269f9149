"""Which shapes to time: whole models drawn evenly over log space, and the calls that such models make.

Whole models instead of bare operator sizes keep every operator on shapes that training really runs, and each layer cell
is timed with the operators it is made of.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from sampling.arithmetic.expert_rows import BALANCED, POWER_LAW
from sampling.arithmetic.operator import LayerSize, Operator
from sampling.call import Call, registry
from sampling.cells.data_parallel import GradientCell, ShardedAdamW
from sampling.cells.head import OutputHead
from sampling.cells.layer import DenseLayer
from sampling.cells.moe_layer import MoELayer
from sampling.cells.overlap import Overlap
from sampling.cells.pipeline_action import PipelineAction
from sampling.choosing.ranges import ShapeRanges, VariantRanges
from sampling.collectives.kinds import AllGather, AllReduce, AllToAll, ReduceScatter, SendRecv
from sampling.operators.attention import Attention, UnfusedAttention
from sampling.operators.experts import ExpertMLP
from sampling.operators.gemm import Gemm
from sampling.operators.linear_attention import GatedDelta
from sampling.operators.memory_bound import Dropout, Stream
from sampling.operators.optimizer import AdamW, GradientScale
from sampling.operators.vocabulary import Embedding

MODELS_SEED = 20
VARIANTS_SEED = 21


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnModel:
    """One drawn point: a model's shape and the microbatch it runs with."""

    layer: DenseLayer
    vocab: int
    layers: int
    message_bytes: int
    variants: tuple[Call, ...] = ()
    """Calls that no dense model makes."""


def draw_models(ranges: ShapeRanges, count: int) -> list[DrawnModel]:
    """`count` models from a scrambled Sobol sequence (Owen 1997), so that any prefix fills the space evenly."""
    models = [_model_at(point, ranges) for point in _points(9, count, MODELS_SEED)]
    if not ranges.variants:
        return models
    every = ranges.variants.every
    # a sequence of its own, so that a new dimension leaves the models as they are
    others = _points(DIMENSIONS, count, VARIANTS_SEED)
    return [
        model
        if (index + 1) % every
        else replace(model, variants=variant_calls(model.layer, other, index // every, ranges.variants))
        for index, (model, other) in enumerate(zip(models, others, strict=True))
    ]


def _points(dimensions: int, count: int, seed: int) -> list[list[float]]:
    """`count` points of the unit cube; torch's sequence, since a machine that samples has torch and may lack scipy."""
    import torch

    engine = torch.quasirandom.SobolEngine(dimensions, scramble=True, seed=seed)  # type: ignore[no-untyped-call]
    points: list[list[float]] = engine.draw(max(1, count), dtype=torch.float64)[:count].tolist()
    return points


def _model_at(point: list[float], ranges: ShapeRanges) -> DrawnModel:
    tokens = _between(ranges.tokens, point[0])
    seq_len = _round_to(min(_between(ranges.seq_len, point[1]), tokens), 16)
    head_dim = ranges.head_dims[int(point[2] * len(ranges.head_dims))]
    # an even number of heads, so that every model can also be split over two ranks
    heads = _round_to(_between(ranges.hidden, point[3]) / head_dim, 2)
    groups = [kv for kv in range(2, heads + 1, 2) if heads % kv == 0]
    hidden = heads * head_dim
    gated = point[5] < 0.75
    low, high = ranges.ffn_ratio
    layer = DenseLayer(
        dtype=ranges.dtype,
        batch=max(1, round(tokens / seq_len)),
        seq_len=seq_len,
        hidden=hidden,
        heads=heads,
        kv_heads=groups[int(point[4] * len(groups))] if gated else heads,
        head_dim=head_dim,
        ffn=_round_to(hidden * (low + (high - low) * point[6]), 32),
        gated=gated,
        norm="rms" if gated else "layer",
        rope=gated,
        qkv_bias=not gated,
        bias=not gated,
        tp=1,
        sp=False,
    )
    return DrawnModel(
        layer=layer,
        vocab=_round_to(_between(ranges.vocab, point[7]), 64),
        layers=_between(ranges.layers, point[8]),
        message_bytes=_round_to(_between(ranges.message_bytes, point[1]), 1024),
    )


def _between(low_high: Sequence[int], share: float) -> int:
    """The size that lies `share` of the way from low to high on a log scale."""
    low, high = low_high
    return round(low * math.exp(math.log(high / low) * share))


def _round_to(value: float, multiple: int) -> int:
    return max(multiple, round(value / multiple) * multiple)


def calls_of(model: DrawnModel, ranks: int, *, with_operators: bool) -> Iterator[Call]:
    """The cells a model makes on `ranks` ranks of one node, then (on request) the operators they are made of."""
    layer = model.layer
    shape = _hidden_states(layer)
    cells: list[Call] = [
        layer,
        OutputHead(**shape, vocab=model.vocab, norm=layer.norm, tp=1, sp=False),
        Embedding(**shape, vocab=model.vocab, tp=1, sp=False),
        AdamW(dtype=layer.dtype, **_weights(model, 1), tp=1),
    ]
    yield from cells
    if ranks > 1:
        yield from group_calls_of(model, ranks)
    if with_operators:
        seen = set()
        for operator in (operator for cell in cells for operator in cell.parts("forward")):
            if operator.call not in seen:
                seen.add(operator.call)
                yield operator.call
        size = LayerSize(**{size.name: getattr(layer, size.name) for size in fields(LayerSize)})
        for kind in registry().values():
            if issubclass(kind, Operator):
                yield from kind.sampled_with(size)
    yield from model.variants


def group_calls_of(model: DrawnModel, ranks: int) -> Iterator[Call]:
    """The calls that span the ranks: tensor-parallel cells, gradient reduction, pipeline send and receive, collectives."""
    layer = model.layer
    fields: dict[str, Any] = layer.fields()
    shape = _hidden_states(layer)
    if layer.kv_heads % ranks == 0 and layer.seq_len % ranks == 0:
        for sp in (False, True):
            yield replace(layer, tp=ranks, sp=sp)
            yield OutputHead(**shape, vocab=model.vocab, norm=layer.norm, tp=ranks, sp=sp)
            yield Embedding(**shape, vocab=model.vocab, tp=ranks, sp=sp)
        yield AdamW(dtype=layer.dtype, **_weights(model, ranks), tp=ranks)
    yield GradientCell(**fields, layers=model.layers, dp=ranks)
    yield ShardedAdamW(dtype=layer.dtype, **_weights(model, 1), dp=ranks)
    yield GradientScale(dtype=layer.dtype, **_weights(model, 1))
    if ranks == 2:
        yield PipelineAction(dtype=layer.dtype, size_bytes=4 * layer.batch * layer.seq_len * layer.hidden)
        yield SendRecv(size_bytes=model.message_bytes, ranks=ranks, ranks_per_node=ranks)
    kinds = (AllReduce, AllGather, ReduceScatter, AllToAll)
    for kind in kinds:
        yield kind(size_bytes=model.message_bytes, ranks=ranks, ranks_per_node=ranks)
    overlap = Overlap(
        dtype=layer.dtype,
        m=layer.batch * layer.seq_len,
        n=layer.ffn,
        k=layer.hidden,
        collective=kinds[model.layers % len(kinds)].NAME,
        size_bytes=model.message_bytes,
        ranks=ranks,
        ranks_per_node=ranks,
    )
    yield overlap
    yield overlap.gemm


def _hidden_states(layer: DenseLayer) -> dict[str, Any]:
    return {name: getattr(layer, name) for name in ("dtype", "batch", "seq_len", "hidden")}


def _weights(model: DrawnModel, tp: int) -> dict[str, int]:
    """Elements and tensors of the drawn layers and the head, on one of `tp` ranks."""
    shapes = replace(model.layer, tp=tp).weight_shapes()
    of_layers = model.layers * sum(math.prod(shape) for shape in shapes)
    return {
        "parameters": of_layers + model.vocab * model.layer.hidden // tp,
        "tensors": model.layers * len(shapes) + 2,
    }


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
