"""The reference calls of a profile's sessions, timed beside a measured step by each of its ranks: they show the machine's pace then."""

from __future__ import annotations

import statistics
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.distributed_c10d import _get_default_store

from predict.layers.run_json import load_run
from sampling.hardware.cluster import Cluster, Machine
from sampling.store.pace import Reading, Resource
from sampling.timing.pace import EVERY_S, PaceMeter, reference_calls
from sampling.timing.stopwatch import host_stopwatch
from sampling.timing.timer import Ranks
from sampling.torch_work.collectives import process_groups


class ReferenceTimes:
    """The readings of a rank's job on a CPU. All ranks of the process group must ask for them together."""

    def __init__(self, cluster: Cluster) -> None:
        self._readings: list[Reading] = []
        self._meter = PaceMeter(
            cluster=cluster,
            device=torch.device("cpu"),
            ranks=_ranks(cluster),
            session=0,
            keep=self._readings.append,
            stopwatch_of=lambda call: host_stopwatch(cluster.threads, call.group_size > 1),
            calls={
                resource: call
                for resource, call in reference_calls(cluster).items()
                if resource != "wire" or dist.is_initialized()
            },
        )

    def read(self) -> None:
        """Read the pace now."""
        self._meter.read()

    def read_if_due(self) -> None:
        """Read the pace where the last reading is a while ago."""
        self._meter.read_if_due()

    def medians_us(self) -> dict[Resource, float]:
        """The median time of each reference call over all readings, on the slowest rank: a step waits for it."""
        return {
            resource: statistics.median(one.slowest_us for one in self._readings if one.resource == resource)
            for resource in dict.fromkeys(one.resource for one in self._readings)
        }


def _ranks(cluster: Cluster) -> Ranks:
    """The ranks of torch's default process group, over which the reference collective runs; a process without one is alone."""
    if cluster.world_size == 1 or not dist.is_initialized():
        return process_groups.LoneRank()
    store, rank = PrefixStore("reference-calls", _get_default_store()), dist.get_rank()
    machine = Machine(nodes=cluster.nodes, gpus_per_node=cluster.gpus_per_node)
    process_groups.use(process_groups.ProcessGroups(rank, machine, PrefixStore("groups", store)))
    return process_groups.Agreement(
        process_groups.agreement_group(PrefixStore("agreement", store), rank, machine.ranks)
    )


def body(run: str, seconds: float, timeout_s: float) -> dict[Resource, float]:
    """The median times of the reference calls over so many seconds, on the ranks of a run and nothing beside them."""
    cluster = load_run(run).cluster
    if cluster.world_size > 1:
        dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))
    times = ReferenceTimes(cluster)
    for _ in range(max(1, round(seconds / EVERY_S))):
        times.read()
        time.sleep(EVERY_S)
    return times.medians_us()
