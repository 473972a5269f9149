"""The operations of a module and the tensors between them, without torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Role = Literal["input", "weight", "made"]
"""The maker of a tensor: the caller, the module's parameters and buffers, or one of its operations."""
Kind = Literal["view", "slice", "copy", "made", "product", "attention", "pointwise", "row", "gather", "update", "other"]
"""An operation by what it does to memory: `made` makes a tensor from nothing, `row` reduces or normalizes along dimensions, `update` writes
a part of a tensor, `other` needs a kernel of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """A tensor by the name of what makes it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    item_bytes: float
    role: Role

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> float:
        return self.elements * self.item_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One operation of a module's forward.

    `macs` are multiply-accumulates of matrix products without regard to masks; `skipped` is the share of them that a kernel
    leaves out, as those above the diagonal of causal attention; `row` the elements that are reduced to one, 0 for none.
    """

    name: str
    type: str
    kind: Kind
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    macs: int = 0
    skipped: float = 0.0
    row: int = 0
    line: str = ""
    """`file:line` of the user's code that calls it."""
    module: str = ""
    """The part of the module that calls it, as `layers.0.mlp`; '' for the module itself."""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A module's forward: its operations in the order in which they run, and the tensors that it returns."""

    name: str
    precision: str
    """The precision of its floating-point tensors and of its products."""
    inputs: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[Tensor, ...]

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """Every tensor by its name."""
        made = (tensor for each in self.operations for tensor in each.writes)
        return {tensor.name: tensor for tensor in (*self.inputs, *self.weights, *made)}

    def owners(self, renames: Callable[[Operation], bool]) -> Mapping[str, str]:
        """The name of each tensor → that of the tensor whose memory it is, where an operation only `renames` memory."""
        owner = {name: name for name in self.tensors}
        for each in self.operations:
            if each.reads and renames(each):
                owner |= {tensor.name: owner[each.reads[0].name] for tensor in each.writes}
        return owner
