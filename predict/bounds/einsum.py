"""The contraction of an operation, as an equation of letters and as multiply-accumulates."""

from __future__ import annotations

import math
from collections.abc import Sequence

from predict.bounds.graph import Operation

LETTERS = "ABCDEFGHIJLMOPQSTUVWXYZ"
"""Letters of elementwise equations; K and N are those of a product, R of a new shape."""


def equation_of(operation: Operation) -> str:
    """The equation of an operation on its dimensions, one letter each: `B0K,NK->B0N` for a linear layer; '' where letters say nothing."""
    ranks = [len(tensor.shape) for tensor in operation.reads]
    (out, *_) = (*(len(tensor.shape) for tensor in operation.writes), 0)
    if operation.type == "linear":
        batch = "".join(f"B{place}" for place in range(ranks[0] - 1))
        return f"{batch}K,NK->{batch}N"
    if operation.type in ("matmul", "bmm", "mm") and min(ranks) >= 2:
        batches = [LETTERS[: rank - 2] for rank in ranks]
        return f"{batches[0]}MK,{batches[1]}KN->{LETTERS[: out - 2]}MN"
    if operation.type == "embedding":
        return f"{LETTERS[: ranks[1]]},VD->{LETTERS[: ranks[1]]}D"
    if operation.kind in ("pointwise", "row", "copy") and max([out, *ranks]) < len(LETTERS):
        reads = ranks[:1] if operation.kind == "row" else ranks
        return f"{','.join(LETTERS[:rank] for rank in reads)}->{LETTERS[:out]}"
    return ""


def einsum_macs(equation: str, shapes: Sequence[Sequence[int]]) -> int:
    """Multiply-accumulates of torch.einsum, contracted from left to right; an ellipsis stands for the dimensions that are left."""
    left, _, result = equation.replace(" ", "").partition("->")
    operands = [_labels(term, shape) for term, shape in zip(left.split(","), shapes, strict=True)]
    sizes: dict[str, int] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        for label, size in zip(labels, shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    macs, known = 0, set(operands[0])
    for place, labels in enumerate(operands[1:], start=1):
        together = known | set(labels)
        macs += math.prod(sizes[label] for label in together)
        later = {label for after in operands[place + 1 :] for label in after} | set(result)
        known = {label for label in together if label in later or label.isdigit()}
    return macs


def _labels(term: str, shape: Sequence[int]) -> list[str]:
    """A label for each dimension; those of an ellipsis are numbers from the last one."""
    if "..." not in term:
        return [*term]
    before, after = term.split("...")
    hidden = len(shape) - len(before) - len(after)
    return [*before, *(str(place) for place in range(hidden, 0, -1)), *after]
