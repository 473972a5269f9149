"""Parts of a model's forward pass, and the FLOPs of the products in each: what `exact` and the compute book add up.

Counted are all products: projections, router, experts that a token is sent to, convolution, chunks of Gated DeltaNet, the head.
Left out are norms, activations, softmax, loss and the embedding look-up, which are no products.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from predict.layers.mixture import Mixture
from predict.model.spec import LayerKind, ModelSpec
from sampling.cells.matrices import Matrix

Part = Literal[
    "embedding",
    "attention_projections",
    "attention_core",
    "gated_deltanet_projections",
    "gated_deltanet_core",
    "dense_feed_forward",
    "router",
    "expert_feed_forward",
    "shared_expert",
    "mtp",
    "head_and_loss",
]
CORES: tuple[Part, ...] = ("attention_core", "gated_deltanet_core")
ENDS: tuple[Part, ...] = ("embedding", "head_and_loss")
Sequences = Mapping[int, int]
"""Length of a sequence → how many there are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartFlops:
    """FLOPs of one part's forward, over all sequences of a batch and all layers of a kind."""

    part: Part
    layer: str
    """Name of the kind of layer; empty outside of layers."""
    layers: int
    """Layers of that kind; 1 outside of layers."""
    forward: int


def sequences_of(lengths: Sequence[int]) -> Sequences:
    return Counter(lengths)


def forward_parts(spec: ModelSpec, sequences: Sequences, *, mtp: bool) -> tuple[PartFlops, ...]:
    """All parts of one forward pass, in the order in which they run; `mtp` adds the layers of multi-token prediction."""
    tokens = sum(length * count for length, count in sequences.items())
    head = 2 * tokens * spec.vocab * spec.hidden
    found = [PartFlops(part="embedding", layer="", layers=1, forward=0)]
    for kind, layers in Counter(spec.kinds()).items():
        found += [
            PartFlops(part=part, layer=kind.name, layers=layers, forward=layers * flops)
            for part, flops in _layer_parts(spec, kind, sequences)
        ]
    if mtp and spec.mtp_layers:
        # a layer, a head, and the projection [hidden, 2·hidden] that joins the next token's embedding
        layer = sum(flops for _, flops in _layer_parts(spec, spec.mtp_kind, sequences))
        further = spec.mtp_layers * (layer + head + 2 * tokens * 2 * spec.hidden**2)
        found.append(PartFlops(part="mtp", layer=spec.mtp_kind.name, layers=spec.mtp_layers, forward=further))
    return (*found, PartFlops(part="head_and_loss", layer="", layers=1, forward=head))


def _layer_parts(spec: ModelSpec, kind: LayerKind, sequences: Sequences) -> Iterator[tuple[Part, int]]:
    """The parts of one layer with their FLOPs."""
    tokens = sum(length * count for length, count in sequences.items())
    mixer, feed_forward = spec.mixer(kind), spec.feed_forward(kind)
    recurrent = mixer.IS_RECURRENT
    window = spec.window if kind.mixer == "sliding" else 0
    core = sum(count * mixer.core_flops(spec, length, window) for length, count in sequences.items())
    yield (
        "gated_deltanet_projections" if recurrent else "attention_projections",
        2 * tokens * mixer.elements_per_token(spec),
    )
    yield "gated_deltanet_core" if recurrent else "attention_core", core
    if not isinstance(feed_forward, Mixture):
        yield "dense_feed_forward", 2 * tokens * feed_forward.elements_per_token(spec)
        return
    router, *gate = feed_forward.routers(spec)
    yield "router", 2 * tokens * router.elements
    yield "expert_feed_forward", 2 * tokens * feed_forward.topk * _elements(feed_forward.expert_matrices(spec))
    if feed_forward.shared_ffn:
        yield "shared_expert", 2 * tokens * _elements([*feed_forward.shared_matrices(spec), *gate])


def _elements(matrices: Iterable[Matrix]) -> int:
    return sum(matrix.elements for matrix in matrices)
