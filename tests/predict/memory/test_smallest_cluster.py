"""The smallest cluster that an answer names is one on which the plan fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from predict.memory.advice import changed, smallest_cluster
from predict.memory.estimate import MemoryEstimate, memory_of
from predict.run.training_run import TrainingRun
from sampling.units import GIB
from tests.predict.workload.parallel_runs import made


def large(**settings: object) -> TrainingRun:
    return made("llama3-70b", **({"plan__tp": 4, "plan__sp": True, "plan__pp": 4, "plan__dp": 4} | settings))  # type: ignore[arg-type]


def with_memory(run: TrainingRun, gib: float) -> MemoryEstimate:
    gpu = replace(run.cluster.gpu, memory_gib=gib)
    return memory_of(replace(run, cluster=replace(run.cluster, gpu=gpu)))


def on_replicas(run: TrainingRun, dp: int) -> MemoryEstimate:
    gpus = run.plan.tp * run.plan.pp * run.plan.cp * dp
    nodes = -(-gpus // run.cluster.gpus_per_node)
    settings = {"plan.dp": dp, "plan.zero": run.plan.zero if dp > 1 else 0}
    return memory_of(changed(run, settings | {"cluster.nodes": nodes, "cluster.gpus_per_node": gpus // nodes}))


def test_one_replica_where_it_fits() -> None:
    found = smallest_cluster(with_memory(large(), 1e4))
    assert found is not None
    assert (found.gpus, found.dp, found.verdict) == (16, 1, "FITS")
    assert found.nodes * large().cluster.gpus_per_node == 16


def test_as_many_replicas_as_sharding_needs() -> None:
    run = large(plan__zero=1, plan__dp=16)
    peaks = {dp: on_replicas(run, dp).point_bytes for dp in (1, 2, 4, 8, 16)}
    assert list(peaks.values()) == sorted(peaks.values(), reverse=True)
    between = (peaks[4] + peaks[2]) / 2 / GIB
    found = smallest_cluster(with_memory(run, between / (1 - 0.0052)))
    assert found is not None
    assert (found.dp, found.gpus) == (4, 64)


def test_more_nodes_than_the_run_has_where_only_those_do() -> None:
    run = large(plan__zero=1, plan__dp=2)
    between = (on_replicas(run, 4).point_bytes + on_replicas(run, 2).point_bytes) / 2 / GIB
    estimate = with_memory(run, between / (1 - 0.0052))
    found = smallest_cluster(estimate)
    assert not estimate.feasible
    assert found is not None
    assert found.dp == 4


def test_none_where_no_number_of_replicas_does() -> None:
    assert smallest_cluster(with_memory(large(plan__zero=1), 1.0)) is None


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_named_cluster_fits(recompute: str) -> None:
    run = large(plan__zero=1, plan__recompute=recompute)
    found = smallest_cluster(memory_of(run))
    assert found is not None
    assert on_replicas(run, found.dp).feasible
