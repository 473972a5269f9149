"""A job: the calls that ranks are to time, where to keep the rows, and for how long."""

from __future__ import annotations

from collections.abc import Callable
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
    """Ranks, and ranks per node, of the groups that its cells run on, all groups at once; None for all ranks as one group."""

    deadline_s: float | None = None
    """End of the budget on `time.monotonic` of the machine on which all ranks run; None for `budget_s` from their own start."""

    @property
    def machine(self) -> Machine:
        return Machine(nodes=self.nodes, gpus_per_node=self.ranks_per_node)

    @property
    def label(self) -> str:
        """The ranks of the job in words."""
        per_node = f"{self.ranks_per_node} rank{'s' if self.ranks_per_node > 1 else ''}"
        on_nodes = f"{per_node} on each of {self.nodes} nodes" if self.nodes > 1 else per_node
        return f"{on_nodes}, {self.group[0]} at a time" if self.group else on_nodes


RunJob = Callable[[Job, Callable[[], None]], None]
"""Has ranks time a job and returns when they are done; meanwhile it calls the function from time to time."""
