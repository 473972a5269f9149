"""A dense MLP: a product in, an activation, a product out."""

from __future__ import annotations

from collections.abc import Iterable

from predict.model.parts.dense import Dense
from predict.model.spec import LayerKind
from predict.rank.module import Module, Works
from predict.rank.share import RankShare
from predict.rank.tensor_parallel import entering, leaving
from sampling.cells.matrices import Matrix, products_on_rank
from sampling.operators.elementwise import Gelu, SwiGLU


def modules(rank: RankShare, kind: LayerKind, mlp: Dense) -> tuple[Module, ...]:
    gated = rank.model.gated
    works = mlp_works(rank, mlp.matrices(rank.model), gated=gated)
    into = 2 if gated and not rank.execution.fuse_gate else 1
    return (
        Module(name="mlp", works=works[:1], exchanges=entering(rank, readers=into)),
        Module(name="mlp", works=works[1:], exchanges=leaving(rank)),
    )


def mlp_works(rank: RankShare, matrices: Iterable[Matrix], *, gated: bool) -> Works:
    """The operators of an MLP with these matrices, divided over tp."""
    products = products_on_rank(matrices, rank.plan.tp)
    activation = (SwiGLU if gated else Gelu)(dtype=rank.dtype, tokens=rank.tokens, width=products["down"][1])
    outputs, inputs = products["up"]
    apart = 2 if gated and not rank.execution.fuse_gate else 1
    return ((rank.gemm(outputs // apart, inputs), apart), (activation, 1), (rank.gemm(*products["down"]), 1))
