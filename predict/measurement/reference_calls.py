"""The reference calls of a profile's sessions, timed beside a measured step by each of its ranks: they show the machine's pace then."""

from collections.abc import Collection
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.distributed_c10d import _get_default_store

from predict.layers.run_json import load_run
from sampling.hardware.cluster import Cluster, Machine
from sampling.store.pace_log import PaceReading, References
from sampling.timing.pace import PaceMeter, reference_calls
from sampling.timing.time_calls import stopwatch_of_reference
from sampling.timing.timer import Ranks
from sampling.torch_work.collectives import process_groups

CPU = torch.device("cpu")


class ReferenceTimes:
    """The readings of a rank's job. All ranks of the process group must ask for them together."""

    def __init__(self, cluster: Cluster, device: torch.device = CPU) -> None:
        self._readings: list[PaceReading] = []
        self._step_of: list[int] = []
        """The step that each reading stands before."""
        self._step = 0
        self._meter = PaceMeter(
            cluster=cluster,
            device=device,
            ranks=_ranks(cluster),
            session=0,
            keep=self._keep,
            stopwatch_of=lambda call: stopwatch_of_reference(call, device, cluster),
            calls={
                resource: call
                for resource, call in reference_calls(cluster).items()
                if resource != "wire" or dist.is_initialized()
            },
        )

    def read(self) -> None:
        """Read the pace now."""
        self._meter.read()

    def read_for(self, seconds: float) -> None:
        """Read the pace over and over. A pause between readings would show the pace of a machine that has rested."""
        self._meter.read_for(seconds)

    def before_step(self, step: int) -> None:
        """Read the pace where the last reading is a while ago."""
        self._step = step
        self._meter.read_if_due()

    def summary(self, kept: Collection[int] = ()) -> References:
        """Medians of all readings, and the disturbances of those before the steps that are `kept`."""
        beside = [one for one, step in zip(self._readings, self._step_of, strict=True) if step in kept]
        return References.of(self._readings, beside)

    def _keep(self, reading: PaceReading) -> None:
        self._readings.append(reading)
        self._step_of.append(self._step)


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


def body(run: str, seconds: float, timeout_s: float) -> dict[str, Any]:
    """The times of the reference calls over so many seconds, on the ranks of a run and nothing beside them."""
    cluster = load_run(run).cluster
    if cluster.world_size > 1:
        dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))
    times = ReferenceTimes(cluster)
    times.read_for(seconds)
    return asdict(times.summary())
