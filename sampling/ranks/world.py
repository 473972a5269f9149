"""The ranks of a cluster, which all run the same command: rank 0 leads the session, the others follow its orders."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Any, NoReturn

from torch._C._distributed_c10d import PrefixStore, Store

from sampling.errors import ConfigError, UserError
from sampling.hardware.this_device import same_device
from sampling.ranks.job import Job
from sampling.ranks.launch import die_with_launcher, leave
from sampling.ranks.liveness import LivenessMonitor
from sampling.ranks.rank import Rank, host
from sampling.ranks.worker import monitored, rendezvous_store, run_job

NEVER = timedelta(days=30)
"""The liveness monitor, not a timeout, ends a wait for a rank that is gone."""


class World:
    """The ranks as rank 0 sees them: hands out jobs, takes part in them, and dismisses the others at the end."""

    def __init__(self, rank: Rank, store: Store, monitor: LivenessMonitor) -> None:
        self.machine = rank.machine
        self.broken = False
        self._rank = rank
        self._store = store
        self._monitor = monitor
        self._jobs = 0

    def __call__(self, job: Job, meanwhile: Callable[[], None]) -> None:
        self._order({"job": asdict(job)})
        try:
            run_job(job, self._rank, PrefixStore(f"job-{self._jobs}", self._store), meanwhile)
        except (UserError, KeyboardInterrupt) as error:
            # the others wait for this rank inside the job and would not take a new order
            self.broken = True
            self._monitor.declare(error)
            raise

    def dismiss(self, exit_code: int) -> None:
        self._order({"exit_code": exit_code})

    def _order(self, order: dict[str, Any]) -> None:
        self._jobs += 1
        self._store.set(f"order/{self._jobs}", json.dumps(order))

    def provenance(self) -> dict[str, Any]:
        """The nodes of the session, with their hosts; ConfigError if their devices differ."""
        nodes = [json.loads(self._store.get(f"node/{node}")) for node in range(self.machine.nodes)]
        for node in nodes:
            if not same_device(node["device"], nodes[0]["device"]):
                raise ConfigError(
                    f"the nodes differ: {nodes[0]['host']} has {nodes[0]['device']}, {node['host']} has {node['device']}; "
                    "sample on nodes of the same kind"
                )
        return {**asdict(self.machine), "hosts": [node["host"] for node in nodes]}


def as_rank(rank: Rank, lead: Callable[[World], int], device: Callable[[], dict[str, Any]]) -> NoReturn:
    """Run a rank's process from start to end: rank 0 runs `lead`, the others follow it.

    `device` gives the facts that identify the node's device.
    """
    die_with_launcher()
    store = rendezvous_store()
    with monitored(rank, store) as monitor:
        if rank.local_rank == 0:
            store.set(f"node/{rank.node}", json.dumps({"host": host(), "device": device()}))
        if rank.rank == 0:
            world = World(rank, store, monitor)
            exit_code = lead(world)
            if world.broken:
                leave(exit_code)
            world.dismiss(exit_code)
        else:
            exit_code = _follow(rank, store)
    leave(exit_code)


def _follow(rank: Rank, store: Store) -> int:
    number = 0
    while True:
        number += 1
        store.wait([f"order/{number}"], NEVER)
        order = json.loads(store.get(f"order/{number}"))
        if "exit_code" in order:
            return int(order["exit_code"])
        run_job(Job(**order["job"]), rank, PrefixStore(f"job-{number}", store))
