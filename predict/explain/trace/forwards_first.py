"""Forwards first: whether a pipeline rank runs all its forwards before its first backward, as AFAB (GPipe) does and 1F1B does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from predict.explain.trace.naming import FORWARD, direction
from predict.explain.trace.timeline import Slice
from sampling.importers.torch_trace.events import Op
from sampling.operators.gemm import Gemm

LEAST = 8
"""Forward products of a step from which on their place is judged."""
ALL, SOME = 0.98, 0.9
"""Share of a step's forward products before its first backward from which on all come first, and up to which they do not. A rank that has
one of many microbatches left lies between them."""


def runs_forwards_first(steps: Iterable[Iterable[Slice]]) -> bool | None:
    """Whether all forwards of each step come first, by its matrix products in their order; None where the steps do not tell."""
    shares = [_share(list(_forwards(step))) for step in steps]
    known = [share for share in shares if share is not None]
    if not known or len(known) < len(shares):
        return None
    if min(known) >= ALL:
        return True
    return False if max(known) <= SOME else None


def _share(forwards: list[bool]) -> float | None:
    """Share of the forward products that come before the first backward one; None where there are too few of them, or no backward."""
    if sum(forwards) < LEAST or all(forwards):
        return None
    return forwards.index(False) / sum(forwards)


def _forwards(slices: Iterable[Slice]) -> Iterator[bool]:
    """Whether each product, in their order, is of a forward."""
    last: Op | None = None
    for each in slices:
        named, op = each.named, each.op
        if op is None or op is last or named is None or named.phase is None or not isinstance(named.call, Gemm):
            continue
        last = op
        yield direction(named.phase) == FORWARD
