"""The physical bound: real rows are never below it, impossible ones are."""

import pytest

from sampling.call import Call
from sampling.collectives.kinds import AllReduce, Collective
from sampling.files.places import SHIPPED_DATA
from sampling.hardware.cluster import Cluster, load_cluster
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import ResidualAdd
from sampling.speed_of_light import physical_bound_us
from sampling.store.profiles import SHIPPED
from sampling.store.tables import iterate_samples, read_samples
from sampling.units import GIB


def h100(nodes: int = 1) -> Cluster:
    return load_cluster(hardware="h100-sxm", nodes=nodes, gpus_per_node=8, profile="none")


def core() -> Cluster:
    return load_cluster(hardware="cpu", nodes=1, gpus_per_node=1, profile="none", cores=1)


def reduce(size_bytes: int, ranks: int = 8) -> AllReduce:
    return AllReduce(size_bytes=size_bytes, ranks=ranks, ranks_per_node=8)


def at_bus_bandwidth(call: Collective, gb_per_s: float) -> float:
    """Microseconds at a bandwidth as nccl-tests states it."""
    return call.bytes_on_wire() / (gb_per_s * 1e3)


BF16 = Gemm(dtype="bf16", m=2048, n=2048, k=2048)
FP32 = Gemm(dtype="fp32", m=2048, n=2048, k=2048)
POSSIBLE: dict[str, tuple[Call, Cluster, float]] = {
    "a small all-reduce within a node, far under 14 ring steps of 10 µs": (reduce(1024), h100(), 15.0),
    "an all-reduce in the NVLink switch": (reduce(GIB), h100(), at_bus_bandwidth(reduce(GIB), 480)),
    "an all-reduce of two nodes over eight rails": (
        reduce(GIB, 16),
        h100(2),
        at_bus_bandwidth(reduce(GIB, 16), 8 * 50),
    ),
    "bf16 on a core with AMX, 2 TFLOP/s": (BF16, core(), BF16.flops("forward") / 2e6),
}


@pytest.mark.parametrize("case", POSSIBLE)
def test_what_real_hardware_does_is_not_called_impossible(case: str) -> None:
    call, cluster, time_us = POSSIBLE[case]
    assert physical_bound_us(call, "forward", cluster) < time_us


IMPOSSIBLE: dict[str, tuple[Call, Cluster, float]] = {
    "twice the peak": (FP32, core(), FP32.flops("forward") / (2 * 0.256e6)),
    "bf16 at twice the tile unit's peak": (BF16, core(), BF16.flops("forward") / (2 * 4.096e6)),
    "an all-reduce at four times the link": (reduce(GIB), h100(), at_bus_bandwidth(reduce(GIB), 4 * 450)),
    "a sum at twice the memory's rate": (
        ResidualAdd(dtype="bf16", tokens=65536, hidden=8192),
        h100(),
        ResidualAdd(dtype="bf16", tokens=65536, hidden=8192).bytes_moved("forward") / (2 * 3352e3),
    ),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_no_hardware_does_is_below_the_bound(case: str) -> None:
    call, cluster, time_us = IMPOSSIBLE[case]
    assert physical_bound_us(call, "forward", cluster) > time_us


def test_waking_threads_costs_nothing_for_sure() -> None:
    machine = load_cluster(hardware="cpu", nodes=1, gpus_per_node=1, profile="none", cores=2)
    call = ResidualAdd(dtype="fp32", tokens=64, hidden=1024)
    assert call.terms("forward", machine)["fork_join"] > 0
    assert physical_bound_us(call, "forward", machine) == 0


def test_the_fastest_of_a_kind_changes_no_prediction() -> None:
    cluster = core()
    assert cluster.gpu.peak_tflops["bf16"] == 0.512
    assert cluster.gpu.at_its_fastest().peak_tflops == {"fp32": 0.256, "bf16": 4.096, "fp16": 4.096}


def test_no_shipped_row_is_below_its_bound() -> None:
    """All rows, quarantined ones too, each on the threads and beside the ranks that it was taken with."""
    machines: dict[tuple[int, int], Cluster] = {}
    rows = list(iterate_samples(read_samples(SHIPPED_DATA / "samples" / SHIPPED)))
    assert len(rows) > 3000
    below = []
    for row in rows:
        taken = (row.threads, row.busy_ranks)
        if taken not in machines:
            machines[taken] = load_cluster(
                hardware="cpu",
                nodes=1,
                gpus_per_node=row.busy_ranks,
                profile="none",
                cores=row.threads * row.busy_ranks,
            )
        if row.time_us < physical_bound_us(row.call, row.phase, machines[taken]):
            below.append(row)
    assert below == []
