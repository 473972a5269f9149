"""The worker on every rank: times a job's calls together, over NCCL/RCCL or gloo.

    torchrun --nproc-per-node 2 -m sampling.ranks.worker JOB.json

`python -m sampling` writes the job and starts the worker; if torchrun or srun started it on every rank of several nodes, it
is the worker itself. Collectives, cells that span ranks, and operators of one device beside busy neighbours are all timed
here.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.rendezvous import rendezvous

from sampling.call import Call, Request, make_call
from sampling.collectives.topology import Placement, groups_of
from sampling.files.disk import naming_the_disk
from sampling.hardware.cluster import Cluster, Machine, load_cluster
from sampling.ranks.job import Job, leave_message
from sampling.ranks.launch import die_with_launcher, leave
from sampling.ranks.liveness import LivenessMonitor
from sampling.ranks.rank import Rank, rank_from
from sampling.store.journal import append_to_journal, attempting
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
        groups = groups_of(Placement(ranks=job.group[0], ranks_per_node=job.group[1]), job.machine)
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
