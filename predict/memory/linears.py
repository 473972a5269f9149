"""Shapes of the products' weights on one rank, for what is allocated by shape."""

from __future__ import annotations

from collections.abc import Iterator

from predict.model.spec import LayerKind
from predict.workload.layers.local import Local

Shape = tuple[int, int]


def linear_shapes(local: Local, kind: LayerKind) -> frozenset[Shape]:
    """[out, in] of every linear of a layer, equal ones once; the router is none of Transformer Engine's."""
    return frozenset((*_mixer(local, kind), *_feed_forward(local, kind)))


def _mixer(local: Local, kind: LayerKind) -> Iterator[Shape]:
    model, tp = local.model, local.plan.tp
    if kind.mixer == "linear" and model.linear:
        linear = model.linear
        keys, values = linear.key_width // tp, linear.value_width // tp
        yield 2 * keys + 2 * values + 2 * linear.value_heads // tp, model.hidden
        yield model.hidden, values
        return
    heads = model.heads // tp
    if model.latent:
        latent = model.latent
        if latent.q_rank:
            yield latent.q_rank, model.hidden
        yield heads * latent.query_dim, latent.q_rank or model.hidden
        yield latent.kv_rank + latent.rope_dim, model.hidden
        yield heads * (latent.nope_dim + latent.value_dim), latent.kv_rank
        yield model.hidden, heads * latent.value_dim
        return
    kv_heads = max(1, model.kv_heads // tp)
    yield (heads * (2 if model.query_gate else 1) + 2 * kv_heads) * model.head_dim, model.hidden
    yield model.hidden, heads * model.head_dim


def _feed_forward(local: Local, kind: LayerKind) -> Iterator[Shape]:
    model, plan, experts = local.model, local.plan, local.model.experts
    if not kind.sparse or experts is None:
        yield from _mlp(model.hidden, model.ffn // plan.tp, 2 if model.gated else 1)
        return
    yield from _mlp(model.hidden, experts.ffn // plan.etp, experts.into)
    if experts.shared_ffn:
        yield from _mlp(model.hidden, experts.shared_ffn // plan.tp, experts.into)


def _mlp(hidden: int, width: int, into: int) -> Iterator[Shape]:
    yield into * width, hidden
    yield hidden, width
