"""Modulation of a layer by its sample's condition: adaLN-Zero of DiT (Peebles and Xie, arXiv 2212.09748), and Wan's tables.

Wan's code computes norm, scale, shift and gate in fp32 in a run of 16 bits, and keeps copies in fp32 (diffusers,
models/transformers/transformer_wan.py, WanTransformerBlock: `norm1(x.float())`, `x.float() + out.float() * gate`).
"""

from predict.layers.saved_tensors import Saved, SavedTensors, Sizes
from predict.model.spec import VECTORS_A_PART, LayerKind
from predict.rank.module import Module, Works
from predict.rank.share import RankShare
from sampling.operators.memory_bound import Stream

EAGER_PASSES = 8.5
"""Passes over a part's tensors by torch's operators beside its norm and its addition: x·(1 + scale) + shift and branch · gate 6 in
forward; in backward the gradients of both and of the three vectors 11; their mean."""
FUSED_PASSES = 2.0
"""Where norm and addition take them: the sums that are the vectors' gradients read what the norm and the branch made; assumed."""
KEPT_VECTORS = VECTORS_A_PART + 1
"""Vectors of each sample that a part keeps: the three, and 1 + scale."""


SCALING_SHARE = 2 / 3
"""Share of a part's passes that its scale and shift have, without a gate."""


def scaling(rank: RankShare) -> Stream:
    """The passes of a scale and a shift alone, before the last product."""
    return _passes(rank, SCALING_SHARE)


def _passes(rank: RankShare, share: float = 1.0) -> Stream:
    passes = EAGER_PASSES if rank.execution.elementwise == "eager" else FUSED_PASSES
    item_bytes = rank.modulated_item_bytes if rank.execution.elementwise == "eager" else rank.item_bytes
    stream = item_bytes * rank.rows * rank.model.hidden
    return Stream(dtype=rank.dtype, size_bytes=round(share * passes * stream))


def modulation_modules(rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
    """The product that makes a layer's vectors, where it has one, and their passes over its parts."""
    model, parts = rank.model, rank.model.modulated_parts(kind)
    if not parts:
        return ()
    works: Works = ((_passes(rank), parts),)
    if model.modulation == "product":
        vectors = VECTORS_A_PART * parts * model.hidden
        product = rank.gemm(vectors, model.hidden, m=rank.run.batch.micro, dtype=rank.dtype)
        works += ((product, model.streams_of(kind)),)
    return (Module(name="modulation", works=works),)


def saved_by_modulation(sizes: Sizes, kind: LayerKind) -> Saved:
    """Tensors that are scaled and gated, 2·e·T·H bytes a part, and vectors of each sample and stream: four a part, and their input where
    a product makes them.

    In fp32 are the scaled tensors, the vectors, and an MLP's result, of which a copy is gated. Attention's result is gated as it is.
    """
    parts = sizes.model.modulated_parts(kind)
    if not parts:
        return ()
    wide = sizes.rank.modulated_item_bytes
    vector = wide * sizes.rank.run.batch.micro * sizes.hidden
    vectors = (KEPT_VECTORS * parts + (sizes.model.modulation == "product")) * sizes.model.streams_of(kind)
    scaled = wide * sizes.rows * sizes.hidden
    gated = scaled if kind.has_feed_forward else sizes.stream
    return (SavedTensors(component="modulation", kept=parts * (scaled + gated) + vectors * vector),)
