"""The references of the pace: which calls they are, and how their meter times them."""

from collections.abc import Callable

import pytest
import torch

from sampling.call import Phase
from sampling.collectives.kinds import AllReduce
from sampling.hardware.cluster import Cluster, load_cluster
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import Stream
from sampling.store.pace import FEWEST_READINGS, Resource
from sampling.store.pace_log import TIMED_AS, PaceReading
from sampling.timing import pace
from sampling.timing.pace import PaceMeter, Reference, reference_calls, runs_of, size_of
from sampling.timing.stopwatch import wall_stopwatch
from sampling.timing.time_calls import stopwatch_of_reference
from sampling.torch_work.collectives.process_groups import LoneRank

PRODUCT = Gemm(dtype="fp32", m=8, n=8, k=8)
PASS = Stream(dtype="fp32", size_bytes=1024)
MESSAGE = AllReduce(size_bytes=1024, ranks=2, ranks_per_node=2)
CPU = torch.device("cpu")


class CountedRanks(LoneRank):
    """Counts how often its ranks wait for one another."""

    def __init__(self) -> None:
        self.barriers = 0

    def barrier(self) -> None:
        self.barriers += 1


class Idle:
    """A workload that does nothing."""

    def prepare(self, phase: Phase) -> None: ...

    def run(self, phase: Phase) -> None: ...


class Clock:
    """A monotonic clock that each timed run moves on by a tenth of a second."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s

    def stopwatch(self, run: Callable[[], None]) -> float:
        self.now_s += 0.1
        return 1000.0


def meter_of(
    calls: dict[Resource, Reference], ranks: LoneRank, monkeypatch: pytest.MonkeyPatch
) -> tuple[PaceMeter, list[PaceReading], Clock]:
    """A meter whose runs take 0.1 s each of a clock of its own, and what it keeps."""
    clock, kept = Clock(), list[PaceReading]()
    monkeypatch.setattr(pace, "time", clock)
    meter = PaceMeter(
        cluster=cluster_of(1, 1),
        device=CPU,
        ranks=ranks,
        session=3,
        keep=kept.append,
        stopwatch_of=lambda call: clock.stopwatch,
        calls=calls,
    )
    return meter, kept, clock


def cluster_of(ranks: int, threads: int) -> Cluster:
    """Ranks of a CPU, each with so many threads."""
    return load_cluster(hardware="cpu", nodes=1, gpus_per_node=ranks, cores=ranks * threads, profile="test")


def test_a_reading_says_what_was_timed_and_how_large_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    meter, kept, _ = meter_of({"compute": PRODUCT, "memory": PASS}, LoneRank(), monkeypatch)
    meter.read()
    assert [(one.resource, one.size, one.session, one.time_us, one.timed_as) for one in kept] == [
        ("compute", 8, 3, 1000.0, TIMED_AS),
        ("memory", 1024, 3, 1000.0, TIMED_AS),
    ]


def test_readings_go_on_for_the_time_that_is_asked_and_are_never_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    meter, kept, clock = meter_of({"compute": PRODUCT}, LoneRank(), monkeypatch)
    meter.read_for(0.0)
    assert len(kept) == FEWEST_READINGS
    before_s = clock.now_s
    meter.read_for(20.0)
    assert 20.0 <= clock.now_s - before_s < 20.0 + 0.1 * sum(runs_of(PRODUCT))


def test_a_reading_is_due_only_a_while_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    meter, kept, clock = meter_of({"compute": PRODUCT}, LoneRank(), monkeypatch)
    meter.read_if_due()
    meter.read_if_due()
    assert len(kept) == 1
    clock.now_s += pace.EVERY_S
    meter.read_if_due()
    assert len(kept) == 2


@pytest.mark.parametrize(
    ("resource", "call", "waits"),
    [("compute", PRODUCT, 1), ("memory", PASS, 1), ("wire", MESSAGE, 1 + sum(runs_of(MESSAGE)))],
)
def test_ranks_wait_for_one_another_between_repeats_of_a_collective_alone(
    resource: Resource, call: Reference, waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = CountedRanks()
    monkeypatch.setattr(pace, "build", lambda call, device: Idle())
    meter, _, _ = meter_of({resource: call}, ranks, monkeypatch)
    meter.read()
    assert ranks.barriers == waits


def product_us(cluster: Cluster) -> float:
    """Time of the product of a cluster at the stated efficiency."""
    gpu, product = cluster.gpu, reference_calls(cluster)["compute"]
    assert isinstance(product, Gemm)
    return product.flops("forward") / (gpu.efficiency["gemm"] * gpu.peak_flops_per_us(product.dtype))


def test_each_reference_takes_at_most_its_stated_time_and_is_not_much_shorter() -> None:
    cluster = cluster_of(2, 1)
    product, stream, wire = reference_calls(cluster).values()
    assert isinstance(product, Gemm)
    assert isinstance(stream, Stream)
    assert isinstance(wire, AllReduce)
    assert pace.CPU_COMPUTE_US / 8 < product_us(cluster) <= pace.CPU_COMPUTE_US
    assert pace.TRAFFIC_US / 2 < stream.size_bytes / cluster.gpu.bytes_per_us() <= pace.TRAFFIC_US
    assert pace.TRAFFIC_US / 2 < wire.size_bytes / cluster.link(2, 2).bytes_per_us() <= pace.TRAFFIC_US
    assert wire.ranks == 2
    assert (size_of(product), size_of(stream), size_of(wire)) == (product.m, stream.size_bytes, wire.size_bytes)


def test_a_lone_rank_has_no_wire() -> None:
    assert set(reference_calls(cluster_of(1, 1))) == {"compute", "memory"}


def test_a_gpus_product_has_the_precision_of_training_and_is_shorter() -> None:
    on_gpu = load_cluster(hardware="h100-sxm", nodes=1, gpus_per_node=1, profile="test")
    assert reference_calls(on_gpu)["compute"].dtype == "bf16"
    assert pace.GPU_COMPUTE_US / 8 < product_us(on_gpu) <= pace.GPU_COMPUTE_US


def test_several_threads_of_a_cpu_are_timed_by_the_mean_of_their_processor_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sampling.timing.time_calls.process_stopwatch", lambda run: 900.0)
    assert stopwatch_of_reference(PRODUCT, CPU, cluster_of(1, 3))(lambda: None) == 300.0


def test_a_collective_is_timed_by_the_wall_clock() -> None:
    assert stopwatch_of_reference(MESSAGE, CPU, cluster_of(2, 3)) is wall_stopwatch
