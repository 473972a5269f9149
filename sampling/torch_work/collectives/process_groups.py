"""The process groups of a job: one over all its ranks to agree on things, one that calls find as torch's default group,
and those of placements, made once each when a call first needs them.

A rank builds a collective without being told the group, as torch's own functions do without one; so the present groups
are the state of the process.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from sampling.collectives.topology import Placement, groups_of
from sampling.hardware.machine import Machine

if TYPE_CHECKING:
    from sampling.collectives.kinds import Collective

TIMEOUT = timedelta(minutes=10)
"""Only what the watch over the ranks does not notice runs into it: ranks that live and do not answer."""


class ProcessGroups:
    """`rank` of the `machine` that the job has; `groups` are made on it in the order in which all ranks ask for them."""

    def __init__(self, rank: int, machine: Machine, store: Store) -> None:
        self.rank = rank
        self._machine = machine
        self._store = store
        self._groups: dict[tuple[int, ...], Any] = {tuple(range(machine.ranks)): dist.group.WORLD}
        self._agreements: dict[tuple[int, ...], dist.ProcessGroupGloo] = {}

    def members(self, call: Collective) -> list[tuple[int, ...]]:
        """The groups that run the collective at once."""
        placement = Placement(ranks=call.ranks, ranks_per_node=call.ranks_per_node)
        found = groups_of(placement, self._machine)[: call.groups]
        if len(found) < call.groups:
            raise ValueError(f"{self._machine} has no {call.groups} groups for {call}")
        return found

    def own(self, call: Collective) -> Any | None:
        """This rank's group for the collective; None if it is in none."""
        # torch wants every rank at the making of every group
        made = [(members, self._made(members)) for members in self.members(call)]
        return next((group for members, group in made if self.rank in members), None)

    def _made(self, members: tuple[int, ...]) -> Any:
        if members not in self._groups:
            self._groups[members] = dist.new_group(list(members), timeout=TIMEOUT)
        return self._groups[members]

    def agreement(self, call: Collective) -> dist.ProcessGroupGloo:
        """A group of its own over the members of this rank's group, to agree while the other one is busy."""
        members = next(members for members in self.members(call) if self.rank in members)
        if members not in self._agreements:
            store = PrefixStore("-".join(map(str, members)), self._store)
            self._agreements[members] = agreement_group(store, members.index(self.rank), len(members))
        return self._agreements[members]


def agreement_group(store: Store, rank: int, ranks: int) -> dist.ProcessGroupGloo:
    return dist.ProcessGroupGloo(store, rank, ranks, TIMEOUT)


_present: ProcessGroups | None = None


def use(groups: ProcessGroups | None) -> None:
    """Make these the process's groups, or forget them."""
    global _present  # noqa: PLW0603
    _present = groups


def present() -> ProcessGroups:
    """The process's groups; RuntimeError outside a job that spans ranks."""
    if _present is None:
        raise RuntimeError("a collective needs the ranks of a job (sampling/collectives/process_groups.py)")
    return _present
