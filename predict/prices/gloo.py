"""Times of messages between the ranks of CPUs by gloo, and the waits for them in a step, where nobody sampled them.

A message of gloo costs threads that wake each other, and copies by the core that the rank computes on:

t = latency · wake-ups + network · messages + sent bytes / (bandwidth · `efficiency.wire`) + bytes in memory / (bandwidth of memory ·
`efficiency.elementwise`)

- Wake-ups follow one another as the sources have them. torch hands a collective to a worker thread, which wakes the caller at its end
  (pytorch, torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, `enqueue` and `runLoop`). A message is announced by the rank that waits for
  it, which wakes the sender's device thread; the data wakes the receiver's, and that the thread that waits (gloo/transport/tcp/pair.cc,
  `recv` and `handleRemotePendingRecv`; loop.cc). Rings send each chunk in two segments (gloo/allreduce.cc, allgather.cc).
- The kernel copies each byte into a socket and out of it. A core that sends and receives at once gives either its share of the rate,
  `efficiency.wire`; a single message has a core for each of the two.
- Memory is read and written besides by sums (allreduce.cc), by gathering into a buffer that is then copied (`AsyncAllgatherWork`) and by
  a reduce-scatter, which is an all-reduce of a copy (`reduce_scatter_tensor_coalesced`).

A wake-up takes the latency inside a node, whichever nodes the ranks are on. Between nodes each message that waits for the one before it
adds a hop of the network, the latency between nodes. With 30 µs, 4 GB/s and 0.5, an all-reduce of some bytes takes 0.3 ms and one of 4 MB
2.6 ms. gloo on a server takes 0.2 and 2.1 (meta-pytorch/torchft, pull request 199, one group); in the shipped rows, of two busy cores,
0.4 and 2.6.
"""

import math
from dataclasses import dataclass

from predict.interval import Interval
from regressors.bank.times import Times
from sampling.collectives.kinds import AllGather, AllReduce, Collective, ReduceScatter, SendRecv
from sampling.hardware.cluster import Cluster

HANDED_OVER = 2
"""Wake-ups by which a collective reaches its worker thread, and its caller learns of the end."""
MESSAGE = 3
"""Wake-ups of a message: the sender's device thread, the receiver's, and the thread that waits for it."""
ANNOUNCED = 2
"""Wake-ups of a message whose receiver waited for it before it was sent."""
SECOND_SEGMENT = 1
"""Wake-up of a ring's worker for the second segment of a chunk."""
TICK_US = 4000.0
"""Time between two ticks of Linux's scheduler, by the usual CONFIG_HZ=250 (kernel/Kconfig.hz)."""
HALF_WIDTH = math.log(2)
"""Half-width of the 90 % interval in log time: servers wake threads in half to twice the time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The work of a rank in a collective."""

    wake_ups: int
    """Threads that are woken one after the other."""
    messages: int
    """Messages that follow one another."""
    sent_bytes: float
    """Bytes that a rank sends, and receives as many."""
    memory_bytes: float = 0.0
    """Bytes that it reads and writes in memory besides."""


def gloo_time(call: Collective, cluster: Cluster) -> Times:
    """The time of a collective or message on its own, after all ranks are there; 0 for a group of one."""
    if call.ranks <= 1:
        return Interval.exactly(0.0).as_times("analytic")
    link, efficiency, work = cluster.link(call.ranks, call.ranks_per_node), cluster.gpu.efficiency, work_of(call)
    share = 1.0 if isinstance(call, SendRecv) else efficiency["wire"]
    wire_us = work.sent_bytes / (share * link.bytes_per_us())
    memory_us = work.memory_bytes / (efficiency["elementwise"] * cluster.gpu.bytes_per_us())
    network_us = cluster.inter_node.latency_us if call.ranks > call.ranks_per_node else 0.0
    latency_us = work.wake_ups * cluster.intra_node.latency_us + work.messages * network_us
    median_us = latency_us + wire_us + memory_us
    return Interval.from_log(median_us, HALF_WIDTH).as_times("analytic")


def work_of(call: Collective) -> Work:
    """The work of each rank, or of the busiest."""
    others, size_bytes = call.ranks - 1, float(call.size_bytes)
    shard_bytes = size_bytes / call.ranks
    copied_bytes = 2 * (size_bytes + shard_bytes)
    step = MESSAGE + SECOND_SEGMENT
    if isinstance(call, SendRecv):
        return Work(wake_ups=ANNOUNCED, messages=1, sent_bytes=size_bytes)
    if isinstance(call, AllGather):
        return Work(
            wake_ups=HANDED_OVER + others * step,
            messages=others,
            sent_bytes=others * shard_bytes,
            memory_bytes=copied_bytes,
        )
    if isinstance(call, AllReduce | ReduceScatter):
        summed_bytes = 3 * others * shard_bytes
        return Work(
            wake_ups=HANDED_OVER + 2 * others * step,
            messages=2 * others,
            sent_bytes=2 * others * shard_bytes,
            memory_bytes=summed_bytes + (copied_bytes if isinstance(call, ReduceScatter) else 0.0),
        )
    # to all others at once, each message after the first by one wake-up more
    return Work(
        wake_ups=HANDED_OVER + MESSAGE + others - 1,
        messages=1,
        sent_bytes=call.bytes_on_wire(),
        memory_bytes=2 * shard_bytes,
    )


def wait_after(compute_us: float) -> Times:
    """The wait of a collective that follows so much compute on cores that are all busy.

    A thread of gloo that is woken on a core whose rank computes runs when that is done, or when the scheduler's next tick parts the two.
    One that is woken on the core of a rank that waits runs at once. The wait is therefore taken as half of the compute, at most half a
    tick; all of it is a factor of 2 away. Between two ranks bound to a core each, all-reduces of 256 KiB took in the mean 0.1 to 0.4 ms
    longer than alone after 0.3 ms of products, 0.4 to 1.0 after 1.3 and 1.0 to 1.5 after 5. Those of a real step
    (configs/runs/demo.yml with tp 2) took 1.6 ms each, their waits included.

    Ranks that the kernel may put on one core wait for all of it. In the shipped rows, which were taken so, the collectives of a layer
    over two ranks take 1 to 2 ms longer than alone after 0.2 to 0.5 ms of compute each, and most of them 3 to 8 ms after 4 ms and more.
    """
    return Interval.from_log(min(compute_us, TICK_US) / 2, HALF_WIDTH).as_times("analytic")
