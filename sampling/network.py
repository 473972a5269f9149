"""The worker that torchrun starts on every rank: time a job's calls together, over NCCL/RCCL or gloo.

    torchrun --nproc-per-node 2 -m sampling.network JOB.json

`python -m sampling` writes the job and starts the worker; collectives, cells that span ranks, and single-device
operators beside busy neighbours all pass through here, so that there is one way to time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from sampling.call import make_call
from sampling.compute import Request, time_requests
from sampling.hardware import load_cluster
from sampling.job import Job
from sampling.launch import die_with_launcher, leave
from sampling.store import Sample, append_to_journal
from sampling.timer import TimerSettings


class GroupRanks:
    """The ranks of the default process group; agreement goes over gloo, whatever the calls themselves use."""

    def __init__(self) -> None:
        self._group = dist.new_group(backend="gloo")

    def barrier(self) -> None:
        dist.barrier(self._group)

    def largest(self, value: float) -> float:
        return self._reduce(value, dist.ReduceOp.MAX)

    def total(self, value: float) -> float:
        return self._reduce(value, dist.ReduceOp.SUM)

    def _reduce(self, value: float, operation: dist.ReduceOp.RedOpType) -> float:
        tensor = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(tensor, operation, group=self._group)
        return float(tensor)

    def gather(self, values: list[float]) -> list[list[float]]:
        tensor = torch.tensor(values, dtype=torch.float64)
        gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, tensor, group=self._group)
        return [of_rank.tolist() for of_rank in gathered]


class LoneRank:
    """A process that times by itself."""

    def barrier(self) -> None:
        """Nobody to wait for."""

    def largest(self, value: float) -> float:
        return value

    def total(self, value: float) -> float:
        return value

    def gather(self, values: list[float]) -> list[list[float]]:
        return [values]


def run_job(job: Job) -> None:
    """Time the job's requests on this rank; rank 0 writes the journal."""
    cluster = load_cluster(
        hardware=job.hardware, nodes=1, gpus_per_node=job.ranks_per_node, profile=job.profile, cores=job.cores
    )
    on_gpu = cluster.gpu.kind != "cpu"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(cluster.threads)
    alone = job.ranks_per_node == 1
    if not alone:
        dist.init_process_group("nccl" if on_gpu else "gloo")
    first = alone or dist.get_rank() == 0
    torch.manual_seed(0 if first else dist.get_rank())

    def keep(sample: Sample) -> None:
        if first:
            append_to_journal(Path(job.directory), sample)

    time_requests(
        [Request(call=make_call(name, values), phases=tuple(phases)) for name, values, phases in job.requests],
        device=device,
        cluster=cluster,
        ranks=LoneRank() if alone else GroupRanks(),
        session=job.session,
        deadline_s=time.monotonic() + job.budget_s,
        settings=TimerSettings(**job.timer),
        keep=keep,
    )
    if not alone:
        dist.barrier()
        dist.destroy_process_group()


@record
def main() -> None:
    die_with_launcher()
    run_job(Job(**json.loads(Path(sys.argv[1]).read_text())))
    leave()


if __name__ == "__main__":
    main()
