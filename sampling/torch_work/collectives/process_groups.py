"""The process groups of a job: one over all ranks for agreement, torch's default group, and those of placements, each made
when a call first needs it.

They are state of the process, as torch's own default group is, so that a call can be built without naming its group.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from sampling.collectives.topology import GroupPlacement, groups_of
from sampling.hardware.cluster import Machine

if TYPE_CHECKING:
    from sampling.collectives.kinds import Collective


TIMEOUT = timedelta(minutes=10)
"""Limit for ranks that are alive and do not answer; the end of a rank is noticed at once (`sampling.ranks.liveness`)."""


class ProcessGroups:
    """The groups of one rank. Every rank asks for them in the same order, since torch makes each group on all ranks at once."""

    def __init__(self, rank: int, machine: Machine, store: Store) -> None:
        self.rank = rank
        self._machine = machine
        self._store = store
        self._groups: dict[tuple[int, ...], Any] = {tuple(range(machine.ranks)): dist.group.WORLD}
        self._agreements: dict[tuple[int, ...], dist.ProcessGroupGloo] = {}

    def members(self, call: Collective) -> list[tuple[int, ...]]:
        """The ranks of each group that runs the collective at the same time."""
        placement = GroupPlacement(ranks=call.ranks, ranks_per_node=call.ranks_per_node)
        found = groups_of(placement, self._machine)[: call.groups]
        if len(found) < call.groups:
            raise ValueError(f"{self._machine} has no {call.groups} groups for {call}")
        return found

    def own(self, call: Collective) -> Any | None:
        """This rank's group for the collective; None if the rank is in none of them."""
        # torch needs every rank to take part in making every group
        made = [(members, self._made(members)) for members in self.members(call)]
        return next((group for members, group in made if self.rank in members), None)

    def _made(self, members: tuple[int, ...]) -> Any:
        if members not in self._groups:
            self._groups[members] = dist.new_group(list(members), timeout=TIMEOUT)
        return self._groups[members]

    def agreement(self, call: Collective) -> dist.ProcessGroupGloo:
        """A second group over the ranks of this rank's group, for agreement while the first one is busy."""
        members = next(members for members in self.members(call) if self.rank in members)
        if members not in self._agreements:
            store = PrefixStore("-".join(map(str, members)), self._store)
            self._agreements[members] = agreement_group(store, members.index(self.rank), len(members))
        return self._agreements[members]


def agreement_group(store: Store, rank: int, ranks: int) -> dist.ProcessGroupGloo:
    return dist.ProcessGroupGloo(store, rank, ranks, TIMEOUT)


def align(device: torch.device) -> None:
    """Queue a tiny collective of torch's default group: what follows it starts at the same time on the devices of all ranks."""
    dist.all_reduce(_tiny(device))


@cache
def _tiny(device: torch.device) -> torch.Tensor:
    return torch.zeros(1, device=device)


_present: ProcessGroups | None = None


def use(groups: ProcessGroups | None) -> None:
    """Make these the process's groups, or forget them."""
    global _present  # noqa: PLW0603
    _present = groups


def are_present() -> bool:
    """Whether the process can run collectives over any of the job's ranks: not where its cells have groups of their own."""
    return _present is not None


def present() -> ProcessGroups:
    """The process's groups; RuntimeError outside a job that spans ranks."""
    if _present is None:
        raise RuntimeError("a collective needs the ranks of a job (sampling/torch_work/collectives/process_groups.py)")
    return _present


class Agreement:
    """The ranks of a `torch.distributed.ProcessGroupGloo`."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def barrier(self) -> None:
        self._group.barrier().wait()

    def largest(self, value: float) -> float:
        return self._reduce(value, dist.ReduceOp.MAX)

    def total(self, value: float) -> float:
        return self._reduce(value, dist.ReduceOp.SUM)

    def _reduce(self, value: float, operation: dist.ReduceOp.RedOpType) -> float:
        tensor = torch.tensor([value], dtype=torch.float64)
        self._group.allreduce([tensor], operation).wait()
        return float(tensor)

    def gather(self, values: list[float]) -> list[list[float]]:
        tensor = torch.tensor(values, dtype=torch.float64)
        gathered = [torch.empty_like(tensor) for _ in range(self._group.size())]
        self._group.allgather([gathered], [tensor]).wait()
        return [of_rank.tolist() for of_rank in gathered]


class LoneRank:
    """A process that times by itself."""

    def barrier(self) -> None:
        """Nothing to wait for."""

    def largest(self, value: float) -> float:
        return value

    def total(self, value: float) -> float:
        return value

    def gather(self, values: list[float]) -> list[list[float]]:
        return [values]
