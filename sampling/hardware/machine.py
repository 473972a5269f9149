"""The ranks at hand: nodes, and GPUs on each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The ranks at hand."""

    nodes: int
    gpus_per_node: int

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus_per_node
