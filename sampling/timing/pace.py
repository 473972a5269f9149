"""Times short reference calls between a session's calls, so that the pace of the machine at each row is known.

One reference is bound by compute, one by memory, and where several ranks run, one is a collective over all of them. One run takes some
milliseconds at most, and all busy ranks time it at once.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sampling.call import Call
from sampling.collectives.kinds import AllReduce
from sampling.hardware.cluster import Cluster
from sampling.hardware.cores import release_other_threads
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import Stream
from sampling.store.pace import FEWEST_READINGS, Resource
from sampling.store.pace_log import MOST_DISTURBED, TIMED_AS, PaceReading
from sampling.timing.stopwatch import Stopwatch
from sampling.timing.timer import Ranks, combined, quiet_repeats
from sampling.torch_work.build import build

if TYPE_CHECKING:
    import torch

GPU_COMPUTE_US, CPU_COMPUTE_US, TRAFFIC_US = 1000.0, 4000.0, 100.0
"""Most time of one run: of the product at the stated efficiency, on a GPU and on a CPU, and of the memory pass and the collective at the
stated bandwidth. It is long beside a clock's resolution, a launch and, for a CPU's product, the waking of a thread, but short beside a
row."""
PRECISIONS = ("bf16", "fp32")
"""Precisions of the references, those that a device lacks left out; on a CPU the second, which every CPU is quick at."""
WARM_UPS = 8
"""Runs of a product or a collective before it is timed: the caches hold what ran before, and a core that has waited is slow at first. After
2 runs a product of 2.6 ms took 2 to 6 % longer than after 12, most beside steps."""
REPEATS = 5
"""Timed runs of a product or a collective. The quiet median of the product's is known to 1 to 3 % on two cores of a shared machine."""
MORE_PASSES = 4
"""Runs of a pass over memory in place of one of another reference: it is short, and its runs differ by more than those of a product."""
EVERY_S = 0.5
"""Least time between readings: they take 20 to 50 ms."""

Reference: TypeAlias = Gemm | Stream | AllReduce


def reference_calls(cluster: Cluster) -> Mapping[Resource, Reference]:
    """The reference calls on a cluster whose ranks are all busy; sizes are powers of two."""
    gpu = cluster.gpu
    dtype = next(each for each in PRECISIONS[gpu.kind == "cpu" :] if each in gpu.peak_tflops)
    compute_us = CPU_COMPUTE_US if gpu.kind == "cpu" else GPU_COMPUTE_US
    flops = compute_us * gpu.efficiency.get("gemm", 0.5) * gpu.peak_flops_per_us(dtype)
    side = _power_of_two((flops / 2) ** (1 / 3))
    calls: dict[Resource, Reference] = {
        "compute": Gemm(dtype=dtype, m=side, n=side, k=side),
        "memory": Stream(dtype=dtype, size_bytes=_power_of_two(TRAFFIC_US * gpu.bytes_per_us())),
    }
    ranks = cluster.nodes * cluster.gpus_per_node
    if ranks > 1:
        link = cluster.link(ranks, cluster.gpus_per_node)
        size_bytes = _power_of_two(TRAFFIC_US * link.bytes_per_us())
        calls["wire"] = AllReduce(size_bytes=size_bytes, ranks=ranks, ranks_per_node=cluster.gpus_per_node)
    return calls


def size_of(reference: Reference) -> int:
    """The `size` of its readings."""
    return reference.m if isinstance(reference, Gemm) else reference.size_bytes


def runs_of(reference: Reference) -> tuple[int, int]:
    """Runs of a reference before it is timed, and timed ones."""
    times = MORE_PASSES if isinstance(reference, Stream) else 1
    return times * WARM_UPS, times * REPEATS


def _power_of_two(size: float) -> int:
    """The largest that is not above `size`."""
    return int(2 ** max(0, math.floor(math.log2(size))))


@dataclass(kw_only=True, slots=True)
class PaceMeter:
    """Times the reference calls of a rank's job, and hands each reading to `keep`."""

    cluster: Cluster
    device: torch.device
    ranks: Ranks
    session: int
    keep: Callable[[PaceReading], None]
    stopwatch_of: Callable[[Call], Stopwatch]
    """The clock by which a reference is timed."""
    calls: Mapping[Resource, Reference]
    _last_s: float = -math.inf

    def read_if_due(self) -> None:
        """Read the pace where the last reading is EVERY_S ago; all ranks agree on it."""
        if self.ranks.largest(time.monotonic() - self._last_s) >= EVERY_S:
            self.read()

    def read_for(self, seconds: float) -> None:
        """Read the pace at least FEWEST_READINGS times, and until the rank that began last has done so for `seconds`."""
        end_s = time.monotonic() + seconds
        for _ in range(FEWEST_READINGS):
            self.read()
        while self.ranks.largest(end_s - time.monotonic()) > 0:
            self.read()

    def read(self) -> None:
        release_other_threads()
        for resource, call in self.calls.items():
            by_rank = self._times(call)
            each_us = [statistics.median(quiet_repeats(times)) for times in by_rank]
            time_us = statistics.fmean(each_us)
            self.keep(
                PaceReading(
                    at_s=time.time(),
                    session=self.session,
                    busy_ranks=self.cluster.gpus_per_node,
                    resource=resource,
                    ranks=call.group_size,
                    size=size_of(call),
                    time_us=time_us,
                    slowest_us=max(each_us),
                    mean_us=statistics.fmean(
                        min(time, MOST_DISTURBED * time_us) for times in by_rank for time in times
                    ),
                    timed_as=TIMED_AS,
                )
            )
        self._last_s = time.monotonic()

    def _times(self, call: Reference) -> list[list[float]]:
        """µs of the call's repeats on each rank, which begin together; of a collective, those of the slowest rank. Only the ranks of a
        collective wait for one another before each repeat: a rank that has waited is slow for a while, and passes over memory then took
        up to twice as long, by chance."""
        # built anew: where its memory happens to lie changes its time by a per cent, which many readings average out
        workload, stopwatch = build(call, self.device), self.stopwatch_of(call)
        together = call.group_size > 1
        warm_ups, repeats = runs_of(call)

        def repeat() -> float:
            workload.prepare("forward")
            if together:
                self.ranks.barrier()
            return stopwatch(lambda: workload.run("forward"))

        self.ranks.barrier()
        for _ in range(warm_ups):
            repeat()
        own_times = [repeat() for _ in range(repeats)]
        if together:
            return [combined(own_times, self.ranks, True, call.DONE_PER_RUN)]
        return self.ranks.gather(own_times)
