"""The worker on every rank: times a job's calls together, over NCCL/RCCL or gloo.

    torchrun --nproc-per-node 2 -m sampling.ranks.worker JOB.json

`python -m sampling` writes the job and starts the worker; if torchrun or srun started it on every rank of several
nodes, it is the worker itself: rank 0 leads the session, the others follow its orders. Collectives, cells that span
ranks, and operators of one device next to busy neighbours are all timed here.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.rendezvous import rendezvous

from sampling.call import Call, Request, make_call
from sampling.collectives.topology import GroupPlacement, groups_of
from sampling.errors import ConfigError, UserError
from sampling.files.disk import naming_the_disk
from sampling.hardware.cluster import Cluster, Machine, load_cluster
from sampling.hardware.this_device import same_device
from sampling.ranks.job import Job, leave_message
from sampling.ranks.launch import die_with_launcher, leave
from sampling.ranks.liveness import LivenessMonitor
from sampling.ranks.rank import Rank, host, rank_from
from sampling.store.journal import append_to_journal, attempting
from sampling.store.pace_log import LOG, PaceReading, append_reading
from sampling.store.sample import Sample
from sampling.timing.time_calls import time_requests
from sampling.timing.timer import Ranks, TimerSettings
from sampling.torch_work.collectives import process_groups
from sampling.torch_work.collectives.process_groups import Agreement, LoneRank

ALONE = Rank(rank=0, local_rank=0, machine=Machine(nodes=1, gpus_per_node=1))


def run_job(
    job: Job,
    rank: Rank,
    store: Store | None,
    row_kept: Callable[[], None] = lambda: None,
) -> None:
    """Time the job's requests if this rank takes part in the job; `store` is the job's own, None on one rank.

    Rank 0 writes the journal, and calls `row_kept` after every row.
    """
    if rank.node >= job.nodes or rank.local_rank >= job.ranks_per_node:
        return
    cluster = load_cluster(
        hardware=job.hardware,
        nodes=job.nodes,
        gpus_per_node=job.ranks_per_node,
        profile=job.profile,
        cores=job.cores,
    )
    member = rank.node * job.ranks_per_node + rank.local_rank
    device = own_device(cluster, rank)
    torch.manual_seed(member)

    def keep(sample: Sample) -> None:
        if member == 0:
            with naming_the_disk(Path(job.directory) / "journal.jsonl"):
                append_to_journal(Path(job.directory), sample)
            row_kept()

    def keep_reading(reading: PaceReading) -> None:
        if member == 0:
            with naming_the_disk(Path(job.directory) / LOG):
                append_reading(Path(job.directory), reading)

    def say(text: str) -> None:
        if rank.rank == 0:
            leave_message(Path(job.directory), text)

    def begun(call: Call) -> AbstractContextManager[None]:
        return attempting(Path(job.directory), call, job.ranks_per_node) if member == 0 else nullcontext()

    with _ranks(job, member, store, cluster) as ranks:
        time_requests(
            [Request(call=make_call(name, values), phases=tuple(phases)) for name, values, phases in job.requests],
            device=device,
            cluster=cluster,
            ranks=ranks,
            session=job.session,
            deadline_s=time.monotonic() + job.budget_s if job.deadline_s is None else job.deadline_s,
            settings=TimerSettings(**job.timer),
            keep=keep,
            say=say,
            begun=begun,
            keep_reading=keep_reading,
        )
        ranks.barrier()


def own_device(cluster: Cluster, rank: Rank) -> torch.device:
    if cluster.gpu.kind == "cpu":
        torch.set_num_threads(cluster.threads)
        return torch.device("cpu")
    # under srun each task may see only its own GPU
    device = torch.device("cuda", rank.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


@contextmanager
def _ranks(job: Job, member: int, store: Store | None, cluster: Cluster) -> Iterator[Ranks]:
    """The job's ranks, with the process groups that its calls find."""
    if job.machine.ranks == 1:
        yield LoneRank()
        return
    assert store is not None
    agreement = process_groups.agreement_group(PrefixStore("agreement", store), member, job.machine.ranks)
    groups = [tuple(range(job.machine.ranks))]
    if job.group:
        groups = groups_of(GroupPlacement(ranks=job.group[0], ranks_per_node=job.group[1]), job.machine)
    index, members = next((index, group) for index, group in enumerate(groups) if member in group)
    dist.init_process_group(
        "gloo" if cluster.gpu.kind == "cpu" else "nccl",
        store=PrefixStore(f"group-{index}", store),
        rank=members.index(member),
        world_size=len(members),
        timeout=process_groups.TIMEOUT,
    )
    if not job.group:
        process_groups.use(process_groups.ProcessGroups(member, job.machine, PrefixStore("groups", store)))
    yield Agreement(agreement)
    process_groups.use(None)
    dist.destroy_process_group()


@contextmanager
def monitored(rank: Rank, store: Store) -> Iterator[LivenessMonitor]:
    """The ranks monitor each other: one that dies, or fails by its own error, ends them all, and each names it."""
    monitor = LivenessMonitor(rank, store)
    try:
        yield monitor
    except BaseException as error:
        if isinstance(error, RuntimeError) and not isinstance(error, torch.OutOfMemoryError):
            # communication fails where another rank died, and only the monitor knows which
            monitor.wait_for_verdict()
        monitor.declare(error)
        raise
    monitor.farewell()


def rendezvous_store() -> Store:
    """The store that all ranks share, at the address of torchrun's variables."""
    store: Store
    store, _, _ = next(iter(rendezvous("env://", timeout=process_groups.TIMEOUT)))
    return store


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


@record
def main() -> None:
    die_with_launcher()
    job = Job(**json.loads(Path(sys.argv[1]).read_text()))
    rank = rank_from(os.environ)
    if rank is None:
        run_job(job, ALONE, None)
    else:
        store = rendezvous_store()
        with monitored(rank, store):
            run_job(job, rank, PrefixStore("job", store))
    leave()


if __name__ == "__main__":
    main()
