"""Shapes of the products' weights on one rank, for what is allocated by shape."""

from __future__ import annotations

from predict.model.layer_kinds import LayerKind
from predict.workload.rank.share import RankShare
from sampling.cells.matrices import Shape, products_on_rank


def linear_shapes(rank: RankShare, kind: LayerKind) -> frozenset[Shape]:
    """[out, in] of every linear of a layer, equal ones once; routers and convolutions are none of Transformer Engine's."""
    model, plan = rank.model, rank.plan
    mixer, feed_forward = model.mixer(kind), model.feed_forward(kind)
    divided = (
        (mixer.matrices(model), plan.tp),
        (feed_forward.matrices(model), plan.tp),
        (feed_forward.expert_matrices(model), plan.etp),
    )
    return frozenset(
        shape
        for matrices, ranks in divided
        for shape in products_on_rank((matrix for matrix in matrices if matrix.is_linear), ranks).values()
    )
