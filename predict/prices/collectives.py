"""Times of collectives between ranks that nobody sampled: a latency and a bandwidth for each of two tiers (α–β).

t = α_start + α_hop·hops + max over tiers of (W + 2κ·√(α·W)),  W = bytes on the busiest link ÷ (peak · efficiency)

Hops and bytes are the textbook's (Thakur, Rabenseifner and Gropp 2005) and NCCL's own model's (src/graph/tuning.cc).
The square root is what chunks cost: k of them take (k + p) · (α/p + W/k) through p hops of latency α together, (√α +
√W)² with the best k, and κ, the link's `chunk_latency`, is how much of that is left. It makes bandwidth grow with size
over decades, as the tables show. The efficiency is `efficiency.wire` of the hardware file, times FILLED. Of the
algorithms that NCCL has for a collective, the fastest counts:

- ring: all ranks in one ring, which enters and leaves a node once, through one network card;
- hierarchical: the ranks of a node work together, between nodes over one card each, and the tiers overlap. For a
  reduction or gathering this is one ring per card, which are NCCL's channels; for an all-to-all, messages to one node's ranks
  are collected first (PXN);
- tree: chains inside nodes, and between them double binary trees, or recursive doubling for a gathering or scattering among
  ranks that are alone on their nodes (PAT);
- direct: every rank writes to its peers.

In a node whose ranks are joined pair by pair (`mesh`), a group has the links between its own ranks alone.

`groups` that run at once leave each other alone: a Link is one rank's own, the network card of it included. That is why,
between nodes, a group uses one network card per rank that it has on a node.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, sqrt
from statistics import median

from predict.interval import Interval
from predict.prices.cost_model import CallPhase, CostModel
from predict.prices.kernels.memory_bound import joined_us
from regressors.bank.times import Times
from sampling.collectives.kinds import (
    KINDS,
    AllGather,
    AllReduce,
    AllToAll,
    Collective,
    CustomAllReduce,
    ReduceScatter,
    SendRecv,
    TokenExchange,
)
from sampling.hardware.cluster import Cluster, Link

# Four numbers for all three GPUs, and κ of their links, fitted to AIConfigurator 0.11's NCCL tables inside a node (A100 NCCL 2.27.3,
# H100 and H200 2.29.2; 2-8 ranks, 512 B-512 MiB), with latencies of 10 µs on the A100 and 6.5 µs on the other two.
HOP_IN_NODE = 0.09
"""Share of a link's latency that each hop costs; the rest, once, starts the kernels. So one message takes the latency."""
MESSAGE = 0.05
"""Share of a link's latency that every further message of an all-to-all costs: they are sent without waiting."""
OWN_SHARD = 0.3
"""Cost of moving a rank's own shard to the result, in bytes on the link, as a share of the shard."""
FILLED = 1.2
"""Bandwidth of a link in the limit, over `efficiency.wire`, which is the share of an all-reduce of 128 MiB: 0.80 of the peak in
these tables, and 0.8 on InfiniBand in published training runs."""
HOP_BETWEEN_NODES = 0.2
"""The same between nodes, by NCCL's own figures: 2.7–5 µs per hop of a network, 0.5–0.6 of NVLink (src/graph/tuning.cc)."""
TREE_FILLED = 0.9
"""Bandwidth of trees over the bandwidth of rings, in NCCL's own model (src/graph/tuning.cc)."""

EXCHANGE_FILLED: Mapping[str, float] = {"intra_node": 0.69, "inter_node": 0.9}
"""Bandwidth of DeepEP's kernels over the links' own, counting the bytes that cross them. Its README's NVLink figures count the copy
that stays: 153 and 158 of 200 GB/s on an H800, 726 and 740 of 900 on SM100, and 289 to 342 of 450 on an H200 (nebius/ml-cookbook), less an
eighth: 0.56 to 0.72. These are of 8 ranks; the README of Hybrid-EP (16 multiprocessors, 16-bit tokens there and back, kernels alone)
has 0.70 with 8 ranks on a GB200. DeepEP's RDMA figures count the copies for the token's own node too: 90 and 81 GB/s with 2 nodes and
61 with 4 (V2), 58 with 4 and 51 with 8 (V1), times the share that leaves, against 50 GB/s of ConnectX-7: 0.81 to 0.92. V1 with 2 nodes
reaches half."""
EXCHANGE_DOUBLING = 0.95
"""Bandwidth in a node with twice the ranks, beyond 8, over the bandwidth before: 0.66, 0.64, 0.63 and 0.62 of the link with 16, 24, 32 and
36 ranks of a GB200's rack (README of Hybrid-EP, as above)."""
EXCHANGE_OVERLAP: Mapping[str, float] = {"deepep": math.inf, "hybridep": 2.0}
"""Exponent of the norm of the times inside nodes and between them, by library: what comes through the network is forwarded inside its
node. DeepEP's README has what the slower of the two takes. With 2, as between work that overlaps in part, 2, 4 and 8 nodes of H100
take 1.7, 3.7 and 6.1 ms, and 1.7, 3.7 and 6.2 in the README of Hybrid-EP (4,096 tokens of 7,168, 8 of 128 to 512 experts, 16
multiprocessors)."""
EXCHANGE_RANKS = 8

HALF_WIDTH: Mapping[str, float] = {"intra_node": 0.3, "inter_node": 0.6}
"""Half-width of the 90 % interval in log time, by the slowest tier that a group crosses. In a node 90 % of the tables' rows are within
0.24, and the largest all-reduces of 8 Hopper ranks, which their switches add up, 0.3 faster. Between nodes there is no public
table to judge by."""

CUSTOM_START_US: Mapping[str, float] = {"read": 4.7, "read twice": 8.6}
"""Starts of vLLM's all-reduce: one in which each rank reads the others' whole buffers, and one in which it
sums a part and then reads the other parts. These and the next are fitted to its tables inside graphs (AIConfigurator, vLLM 0.14; A100 and
H100, 2 to 8 ranks, up to 4 MiB)."""
CUSTOM_FILLED = 0.6
"""Bandwidth of these reads over the link's own."""
PCIE_GB_PER_S = 100.0
"""Links slower than this go through the host, where vLLM's kernel takes no more than two ranks."""
HOST_GB_PER_S, HOST_START_US = 80.0, 3.4
"""The first, divided by the ranks, is the bandwidth that all of them together have through the host; the second is the start per rank.
NCCL's all-reduce on L40S (AIConfigurator; 4 and 8 ranks, 8 KiB to 16 MiB)."""

Algorithms = dict[str, float]


def collective_us(call: Collective, cluster: Cluster) -> float:
    """Median time of a collective with the best algorithm for it; 0 for a group of one."""
    return min(algorithms_us(call, cluster).values())


def algorithms_us(call: Collective, cluster: Cluster) -> Algorithms:
    """Time of each algorithm that could do it, by its name."""
    if call.ranks <= 1:
        return {"none": 0.0}
    return _ALGORITHMS[type(call)](call, cluster)


def half_width(call: Collective) -> float:
    """Half-width in log time of the 90 % interval about `collective_us`."""
    return HALF_WIDTH["intra_node" if call.ranks <= call.ranks_per_node else "inter_node"]


def _around_ring(call: Collective, cluster: Cluster) -> Algorithms:
    """Reductions, gatherings and scatterings: the busiest rank sends size · wire factor."""
    ranks, in_node = call.ranks, min(call.ranks, call.ranks_per_node)
    nodes = ceil(ranks / in_node)
    # the last node may have fewer of the ranks than the others, and all rings pass it
    cards = ranks - (nodes - 1) * in_node
    inside, between = cluster.link_in_node(in_node), cluster.inter_node
    passes = call.steps() / (ranks - 1)
    sent = call.bytes_on_wire()
    wire_us = _filling_us(sent + OWN_SHARD * call.size_bytes / ranks, inside, cluster)
    if nodes == 1:
        return {"ring": _start_us(inside) + HOP_IN_NODE * inside.latency_us * call.steps() + wire_us}
    if in_node == 1:
        wire_us = 0.0
    start_us = _start_across_us(in_node, cluster)
    hop_in_node_us, hop_us = HOP_IN_NODE * inside.latency_us, HOP_BETWEEN_NODES * between.latency_us
    around_us = start_us + passes * ((ranks - nodes) * hop_in_node_us + (nodes - 1) * hop_us)
    times = {"ring": around_us + max(wire_us, _filling_us(sent, between, cluster))}
    if in_node > 1:
        times["hierarchical"] = around_us + max(wire_us, _filling_us(sent / cards, between, cluster))
    if in_node == 1 or passes == 2:
        # bit_length counts the levels of a tree over the nodes
        down_us = start_us + passes * ((in_node - 1) * hop_in_node_us + (nodes - 1).bit_length() * hop_us)
        times["tree"] = down_us + max(wire_us, _filling_us(sent / cards / TREE_FILLED, between, cluster))
    return times


def _custom(call: Collective, cluster: Cluster) -> Algorithms:
    """Both of vLLM's kernels, and the library that it leaves larger buffers to, and groups whose links go through the host."""
    link, others = cluster.link_in_node(call.ranks), call.ranks - 1
    if link.gb_per_s < PCIE_GB_PER_S and call.ranks > 2:
        through_host = 2 * others * call.ranks * call.size_bytes / (HOST_GB_PER_S * 1e3)
        return {"host": HOST_START_US * call.ranks + through_host}
    speed = CUSTOM_FILLED * link.bytes_per_us()
    read_us = others * call.size_bytes / speed
    return {
        "read": CUSTOM_START_US["read"] + read_us,
        "read twice": CUSTOM_START_US["read twice"] + 2 * read_us / call.ranks,
        **_around_ring(call, cluster),
    }


def _all_to_all(call: Collective, cluster: Cluster) -> Algorithms:
    """Every rank keeps or sends in its node what stays there, and the rest through its own network card."""
    ranks, in_node = call.ranks, min(call.ranks, call.ranks_per_node)
    inside, between = cluster.link_in_node(in_node), cluster.inter_node
    share = call.size_bytes / ranks
    stays_us = _filling_us(share * (in_node - 1 + OWN_SHARD), inside, cluster)
    messages_us = MESSAGE * inside.latency_us * (in_node - 1)
    if ranks <= in_node:
        first_us = (1 - MESSAGE) * inside.latency_us
        return {"direct": first_us + messages_us + stays_us}
    nodes = ceil(ranks / in_node)
    away = share * min((nodes - 1) * in_node, ranks - 1)
    away_us = _filling_us(away, between, cluster)
    start_us = _start_across_us(in_node, cluster) + HOP_BETWEEN_NODES * between.latency_us + messages_us
    message_us = MESSAGE * between.latency_us
    times = {"direct": start_us + message_us * (ranks - in_node - 1) + max(stays_us, away_us)}
    if in_node > 1:
        collected = away * (in_node - 1) / in_node
        inside_us = _filling_us(share * (in_node - 1 + OWN_SHARD) + collected, inside, cluster)
        # one more hop and round of messages in the node, so that a card sends one message per node
        collect_us = HOP_IN_NODE * inside.latency_us + messages_us
        times["hierarchical"] = start_us + collect_us + message_us * (nodes - 2) + max(inside_us, away_us)
    return times


def _token_exchange(call: Collective, cluster: Cluster) -> Algorithms:
    """Copies through the network cards and those inside the nodes are in flight at once."""
    assert isinstance(call, TokenExchange)
    in_node = min(call.ranks, call.ranks_per_node)
    inside, between = cluster.link_in_node(in_node), cluster.inter_node
    doublings = math.log2(max(1.0, in_node / EXCHANGE_RANKS))
    filled = EXCHANGE_FILLED["intra_node"] * EXCHANGE_DOUBLING**doublings
    inside_us = call.size_bytes / (filled * inside.bytes_per_us())
    if call.ranks <= call.ranks_per_node:
        return {"direct": inside.latency_us + inside_us}
    away_us = call.away_bytes / (EXCHANGE_FILLED["inter_node"] * between.bytes_per_us())
    return {
        "per_node": inside.latency_us
        + between.latency_us
        + _both_us(inside_us, away_us, EXCHANGE_OVERLAP[call.library])
    }


def _both_us(inside_us: float, away_us: float, exponent: float) -> float:
    return max(inside_us, away_us) if math.isinf(exponent) else joined_us(inside_us, away_us, exponent)


def _message(call: Collective, cluster: Cluster) -> Algorithms:
    link = cluster.link(call.ranks, call.ranks_per_node)
    return {"direct": link.latency_us + _filling_us(call.size_bytes, link, cluster)}


def _filling_us(sent_bytes: float, link: Link, cluster: Cluster) -> float:
    """Time of bytes on a link, with that while it fills."""
    wire_us = sent_bytes / (link.bytes_per_us() * min(1.0, FILLED * cluster.gpu.efficiency["wire"]))
    return wire_us + 2 * link.chunk_latency * sqrt(link.latency_us * wire_us)


def _start_us(link: Link) -> float:
    return (1 - HOP_IN_NODE) * link.latency_us


def _start_across_us(in_node: int, cluster: Cluster) -> float:
    """Start of a collective between nodes, no sooner than one inside them where it has such a part."""
    start_us = (1 - HOP_BETWEEN_NODES) * cluster.inter_node.latency_us
    return start_us if in_node == 1 else max(start_us, _start_us(cluster.intra_node))


_ALGORITHMS: Mapping[type[Collective], Callable[[Collective, Cluster], Algorithms]] = {
    AllReduce: _around_ring,
    CustomAllReduce: _custom,
    AllGather: _around_ring,
    ReduceScatter: _around_ring,
    AllToAll: _all_to_all,
    SendRecv: _message,
    TokenExchange: _token_exchange,
}


RANKS = (2, 4, 8, 16, 32)
"""Sizes of the groups that samplers time."""
SMALLEST, LARGEST = 2**16, 2**27
"""Sizes of the messages that they time; a message beyond has the ratio of the nearest."""


@dataclass(frozen=True, slots=True)
class CollectiveCorrection:
    """Ratios of a profile's samples over the two tiers, inside a node and between nodes, by size."""

    fitted: CostModel
    _ratios: dict[tuple[type[Collective], bool, int], float | None] = field(default_factory=dict)

    def time(self, call: Collective, cluster: Cluster) -> Times | None:
        """The network's time of a group, times the ratio for groups on the same tier; None where none of those was sampled."""
        ratio = self._ratio(call, cluster)
        if ratio is None:
            return None
        return Interval.from_log(ratio * collective_us(call, cluster), half_width(call)).as_times("extrapolated")

    def _ratio(self, call: Collective, cluster: Cluster) -> float | None:
        between = call.ranks > call.ranks_per_node
        size_bytes = 2 ** round(math.log2(min(LARGEST, max(SMALLEST, call.size_bytes))))
        key = type(call), between, size_bytes
        if key not in self._ratios:
            self._ratios[key] = self._found(call, between, size_bytes, cluster)
        return self._ratios[key]

    def _found(self, call: Collective, between: bool, size_bytes: int, cluster: Cluster) -> float | None:
        """The ratio for the same kind of collective where it was sampled, else for all kinds."""
        for kinds in ((type(call),), KINDS):
            probes = [probe for kind in kinds for probe in _groups(kind, between, size_bytes)]
            probed: list[CallPhase] = [(probe, "forward") for probe in probes]
            answers = self.fitted.times(probed, cluster)
            ratios = [
                time.median_us / collective_us(probe, cluster)
                for probe, time in zip(probes, answers, strict=True)
                if time and time.source == "measured"
            ]
            if ratios:
                return median(ratios)
        return None


def _groups(kind: type[Collective], between: bool, size_bytes: int) -> Iterator[Collective]:
    for ranks in (2,) if kind is SendRecv else RANKS:
        whole = kind(size_bytes=size_bytes, ranks=ranks, ranks_per_node=ranks)
        if not between:
            yield whole
            continue
        yield from (replace(whole, ranks_per_node=a_node) for a_node in (1, 2, 4, 8) if a_node < ranks)
