"""The smallest cluster on which a plan fits: as few replicas as the device's memory allows.

More replicas hold less each: ZeRO shards the state over more ranks, and their share of the global batch is smaller.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from predict.memory.changed_run import changed
from predict.memory.estimate import MemoryEstimate, Verdict, memory_of
from predict.run.replica import one_replica
from predict.run.training_run import TrainingRun
from sampling.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class SmallestCluster:
    """The fewest GPUs, of the run's own nodes, on which the expected peak of its plan fits."""

    gpus: int
    nodes: int
    dp: int
    """Data-parallel ranks there, which share the run's global batch."""
    verdict: Verdict
    """FITS, or AT RISK where the upper bound does not fit."""


def smallest_cluster(memory: MemoryEstimate) -> SmallestCluster | None:
    """The smallest cluster for the plan of an estimate; None where no number of replicas makes it fit.

    The estimate itself answers for its own number of replicas. Others take the order of actions that memory_of gives them.
    """
    run = memory.run
    runs = list(_on_fewer_and_more_nodes(run))
    if not runs:
        return _cluster(memory) if memory.feasible else None
    estimates: dict[int, MemoryEstimate] = {run.plan.dp: memory}

    def estimate(other: TrainingRun) -> MemoryEstimate:
        if other.plan.dp not in estimates:
            estimates[other.plan.dp] = memory_of(other, safety_margin=memory.safety_margin)
        return estimates[other.plan.dp]

    def fits(other: TrainingRun) -> bool:
        return estimate(other).feasible

    if fits(runs[0]):
        return _cluster(estimate(runs[0]))
    if not fits(runs[-1]):
        return _cluster(memory) if memory.feasible else None
    return _cluster(estimate(runs[bisect_left(runs, True, key=fits)]))


def _on_fewer_and_more_nodes(run: TrainingRun) -> Iterator[TrainingRun]:
    """The run with each number of replicas that the rules of a config allow, the fewest first."""
    plan, replica = run.plan, one_replica(run)
    sequences = run.batch.global_ // run.batch.micro
    for dp in _divisors(sequences):
        gpus = plan.tp * plan.pp * plan.cp * dp
        nodes = math.ceil(gpus / run.cluster.gpus_per_node)
        if dp % replica.dp or gpus % nodes:
            continue
        # a single rank has nobody to shard its state with
        zero = plan.zero if dp * plan.cp > 1 else 0
        settings = {"plan.dp": dp, "plan.zero": zero, "cluster.nodes": nodes, "cluster.gpus_per_node": gpus // nodes}
        try:
            yield changed(run, settings)
        except UserError:
            continue


def _divisors(number: int) -> list[int]:
    """The divisors of a number, in ascending order."""
    low = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    return sorted({*low, *(number // divisor for divisor in low)})


def _cluster(memory: MemoryEstimate) -> SmallestCluster:
    cluster = memory.run.cluster
    return SmallestCluster(gpus=cluster.world_size, nodes=cluster.nodes, dp=memory.run.plan.dp, verdict=memory.verdict)
