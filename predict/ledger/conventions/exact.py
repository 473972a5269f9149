"""Exact count of the FLOPs that a model requires, and with recomputation those that the hardware does (HFU).

Counted are all products: projections, router, experts that a token is sent to, convolution, chunks of Gated DeltaNet, the head.
Left out are norms, activations, softmax, loss and the embedding look-up, which are no products. Backward is twice forward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from predict.ledger.conventions.inputs import read_spec
from predict.model.layer_kinds import LayerKind
from predict.model.parts.linear_attention import LinearAttention
from predict.model.spec import ModelSpec
from sampling.files.faults import Fault, config_error, did_you_mean, shown

CHUNK = 64
"""Tokens of a chunk in flash-linear-attention's Gated DeltaNet; the last chunk of a sequence is computed in full."""
RECOMPUTED = ("none", "selective", "full")


def exact(config: Mapping[str, Any], lengths: Sequence[int], *, mtp: bool = False) -> float:
    """FLOPs required, each token attending to itself and to the earlier tokens it may see.

    `mtp` adds the layers of multi-token prediction, each with its joining projection and another pass of the head; whether a
    run trains them, its config.json does not say. Raises ConfigError for a model that is not modelled.
    """
    return _required(read_spec(config, lengths, convention="exact"), lengths, mtp=mtp)


def hfu(config: Mapping[str, Any], lengths: Sequence[int], *, recompute: str = "none", mtp: bool = False) -> float:
    """`exact` plus the forward work that recomputation repeats: of every layer (`full`), or of attention's core (`selective`,
    Korthikanti et al., arXiv 2205.05198). The head is never repeated, nor are the scores that a flash-attention kernel rebuilds in
    its backward. Raises ConfigError for any other `recompute`, and as `exact` does.
    """
    if recompute not in RECOMPUTED:
        known = f"is not one of {', '.join(RECOMPUTED)}{did_you_mean(recompute, RECOMPUTED)}"
        raise config_error([Fault(path="recompute", problem=f"{shown(recompute)} {known}")], {"": "plan"})
    spec = read_spec(config, lengths, convention="HFU")
    required = _required(spec, lengths, mtp=mtp)
    if recompute == "none":
        return required
    repeated = _layers_forward if recompute == "full" else _cores_forward
    return required + repeated(spec, lengths, mtp=mtp)


def _required(spec: ModelSpec, lengths: Sequence[int], *, mtp: bool) -> float:
    return 3.0 * (_layers_forward(spec, lengths, mtp=mtp) + _ends_forward(spec, lengths, mtp=mtp))


def _layers_forward(spec: ModelSpec, lengths: Sequence[int], *, mtp: bool) -> int:
    """Projections, feed-forward and mixing of all layers."""
    matrices = sum(
        count * (spec.mixer(kind).elements_per_token(spec) + spec.feed_forward(kind).elements_per_token(spec))
        for kind, count in _kinds(spec, mtp=mtp).items()
    )
    return 2 * sum(lengths) * matrices + _cores_forward(spec, lengths, mtp=mtp)


def _cores_forward(spec: ModelSpec, lengths: Sequence[int], *, mtp: bool) -> int:
    """The work in which tokens meet: scores and the values they weigh, or the chunks of a recurrence."""
    return sum(
        count * _core_forward(spec, kind, length) for kind, count in _kinds(spec, mtp=mtp).items() for length in lengths
    )


def _ends_forward(spec: ModelSpec, lengths: Sequence[int], *, mtp: bool) -> int:
    """The head, and for each layer of multi-token prediction a head and the projection [hidden, 2·hidden] that joins the next
    token's embedding."""
    layers = spec.mtp_layers if mtp else 0
    return 2 * sum(lengths) * ((1 + layers) * spec.vocab * spec.hidden + layers * 2 * spec.hidden**2)


def _kinds(spec: ModelSpec, *, mtp: bool) -> Counter[LayerKind]:
    further = [spec.mtp_kind] * spec.mtp_layers if mtp else []
    return Counter([*spec.kinds(), *further])


def _core_forward(spec: ModelSpec, kind: LayerKind, length: int) -> int:
    mixer = spec.mixer(kind)
    if isinstance(mixer, LinearAttention):
        return _chunks_forward(mixer, length)
    window = min(length, spec.window) if kind.mixer == "sliding" else length
    pairs = window * (window + 1) // 2 + (length - window) * window
    return 2 * pairs * mixer.score_width(spec)


def _chunks_forward(linear: LinearAttention, length: int) -> int:
    """Gated DeltaNet by chunks of C tokens (Yang et al., arXiv 2412.06464, section 3.3), per token and value head: products
    within a chunk 2C(2dₖ+dᵥ), with the state 6·dₖ·dᵥ, and the triangular solve C(dₖ+dᵥ)."""
    keys, values = linear.key_dim, linear.value_dim
    per_token = 2 * CHUNK * (2 * keys + values) + 6 * keys * values + CHUNK * (keys + values)
    padded = -(-length // CHUNK) * CHUNK
    return linear.value_heads * padded * per_token
