"""Which shapes to time: whole models drawn evenly over log space, and the calls that such models make.

Whole models instead of bare operator sizes keep every operator on shapes that training really runs, and each layer cell
is timed with the operators it is made of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from sampling.arithmetic.operator import LayerSize, Operator
from sampling.call import Call
from sampling.catalogue import registry
from sampling.cells.gradient_cell import GradientCell
from sampling.cells.head import OutputHead
from sampling.cells.layer import DenseLayer
from sampling.cells.overlap import Overlap
from sampling.cells.pipeline_action import PipelineAction
from sampling.cells.sharded_adamw import ShardedAdamW
from sampling.choosing.model_variants import DIMENSIONS, variant_calls
from sampling.choosing.ranges import ShapeRanges
from sampling.collectives.kinds import AllGather, AllReduce, AllToAll, ReduceScatter, SendRecv
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
    shape: dict[str, Any] = {
        "dtype": layer.dtype,
        "batch": layer.batch,
        "seq_len": layer.seq_len,
        "hidden": layer.hidden,
    }
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
    shape: dict[str, Any] = {
        "dtype": layer.dtype,
        "batch": layer.batch,
        "seq_len": layer.seq_len,
        "hidden": layer.hidden,
    }
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


def _weights(model: DrawnModel, tp: int) -> dict[str, int]:
    """Elements and tensors of the drawn layers and the head, on one of `tp` ranks."""
    shapes = replace(model.layer, tp=tp).weight_shapes()
    of_layers = model.layers * sum(math.prod(shape) for shape in shapes)
    return {
        "parameters": of_layers + model.vocab * model.layer.hidden // tp,
        "tensors": model.layers * len(shapes) + 2,
    }
