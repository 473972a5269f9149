"""Split backward: whether a rank computes the gradients of weights apart from those of inputs, as zero-bubble schedules do.

The backward of a product y = x·w is two: dx = dy·w and dw = dyᵀ·x. Under an ordinary backward they alternate, layer by layer; under a split
one those of all the layers of a stage follow one another. Their shapes tell them apart: dw sums over the tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from predict.explain.trace.timeline import Slice
from sampling.importers.torch_trace.events import Op
from sampling.operators.gemm import Gemm

LEAST = 40
"""Products from which on their order is judged."""
TOGETHER, ALTERNATING = 0.9, 0.1
"""Share of neighbours of one kind from which on a backward is split, and up to which it is not. Between them lie, for example, gradients of
weights that a framework puts off by one layer."""


def splits_backward(slices: Iterable[Slice]) -> bool | None:
    """Whether the backward of a rank's slices, in their order, is split; None where they do not tell."""
    kinds = [*_kinds(slices)]
    if len(kinds) < LEAST:
        return None
    alike = sum(one == other for one, other in pairwise(kinds)) / (len(kinds) - 1)
    if ALTERNATING < alike < TOGETHER:
        return None
    return alike >= TOGETHER


def _kinds(slices: Iterable[Slice]) -> Iterator[bool]:
    """Whether each product of a backward is the gradient of weights; without those whose shapes do not tell."""
    last: Op | None = None
    for each in slices:
        named, op = each.named, each.op
        if op is None or op is last or named is None or not isinstance(named.call, Gemm) or named.phase != "backward":
            continue
        last = op
        first: list[int] = next((dims for dims in op.dims if dims), [])
        if first.count(named.call.m) == 1 and len(first) == 2:
            yield first[1] == named.call.m
