"""Kernels of a step with the group whose factor corrects them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from predict.serving.server import Server
from sampling.call import Call
from sampling.cells.matrices import Matrix, products_on_rank
from sampling.operators.gemm import Gemm

Group = Literal["gemm", "moe", "attention", "all_reduce", "elementwise"]
GroupedCall = tuple[Group, Call, float]
"""Group, call and how often a layer runs it."""


def products(server: Server, matrices: tuple[Matrix, ...], tokens: int) -> Iterator[GroupedCall]:
    """The products of these matrices on one GPU."""
    for outputs, inputs in products_on_rank(matrices, server.tp).values():
        yield "gemm", Gemm(dtype=server.placement.precision, m=tokens, n=outputs, k=inputs), 1
