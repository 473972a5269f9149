"""What the orchestrator hands to the workers: calls to time, where to keep the rows, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sampling.call import Phase
from sampling.hardware.machine import Machine


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """JSON-able. `requests` are (call name, fields, phases); `ranks_per_node` processes share a node's `cores` CPU cores."""

    directory: str
    profile: str
    hardware: str
    cores: int | None
    ranks_per_node: int
    session: int
    budget_s: float
    timer: dict[str, Any]
    requests: list[tuple[str, dict[str, Any], list[Phase]]]
    nodes: int = 1
    group: tuple[int, int] | None = None
    """Ranks, and ranks a node, of the groups that its cells run on, all groups at once; None for all ranks as one group."""

    @property
    def machine(self) -> Machine:
        return Machine(nodes=self.nodes, gpus_per_node=self.ranks_per_node)
