"""Analytic times of collectives: physical bounds, and the order of the algorithms."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predict.prices.collectives import HALF_WIDTH, CollectiveCorrection, algorithms_us, collective_us, half_width
from predict.prices.gloo import gloo_time
from predict.prices.open import SpeedOfLight
from predict.prices.sampled import WithinSamples
from regressors.bank.times import Source, Times
from sampling.call import Call, Phase
from sampling.collectives.kinds import (
    AllGather,
    AllReduce,
    AllToAll,
    Collective,
    CustomAllReduce,
    ReduceScatter,
    SendRecv,
    TokenExchange,
)
from sampling.errors import ConfigError
from sampling.hardware.cluster import Cluster, Link, load_cluster
from sampling.units import MIB
from tests.predict.prices.devices import cluster_of, time_us

IN_GROUPS: tuple[type[Collective], ...] = (AllReduce, AllGather, ReduceScatter, AllToAll)
KINDS = (*IN_GROUPS, SendRecv)
GPUS = ("a100-80gb", "h100-sxm", "mi300x")

sizes = st.integers(min_value=1, max_value=2**34)
groups_of_ranks = st.sampled_from([(n, g) for n in (2, 4, 8, 16, 64, 512) for g in (1, 2, 4, 8) if g <= n])
kinds = st.sampled_from(IN_GROUPS)
hardware = st.sampled_from(GPUS)


def switched(cluster: Cluster) -> Cluster:
    """The cluster as if a switch joined the GPUs of a node."""
    return replace(cluster, intra_node=replace(cluster.intra_node, mesh=0))


def with_link(
    cluster: Cluster, tier: str, *, latency: float = 1.0, bandwidth: float = 1.0, chunks: float = 1.0
) -> Cluster:
    link: Link = getattr(cluster, tier)
    changed = Link(
        latency_us=link.latency_us * latency,
        gb_per_s=link.gb_per_s * bandwidth,
        chunk_latency=link.chunk_latency * chunks,
    )
    return replace(cluster, intra_node=changed) if tier == "intra_node" else replace(cluster, inter_node=changed)


@given(kind=kinds, gpu=hardware, group=groups_of_ranks, size=sizes, more=st.integers(1, 2**30))
def test_more_bytes_take_longer(kind: type[Collective], gpu: str, group: tuple[int, int], size: int, more: int) -> None:
    cluster = cluster_of(gpu)
    assert time_us(kind, size, *group, cluster) < time_us(kind, size + more, *group, cluster)


@given(kind=kinds, gpu=hardware, size=sizes, in_node=st.sampled_from([1, 8]), doublings=st.integers(0, 5))
def test_more_full_nodes_take_longer(kind: type[Collective], gpu: str, size: int, in_node: int, doublings: int) -> None:
    nodes = 2**doublings
    if in_node * nodes == 1:
        return
    fewer = time_us(kind, size, in_node * nodes, in_node, cluster_of(gpu))
    assert fewer <= time_us(kind, size, 2 * in_node * nodes, in_node, cluster_of(gpu))


@given(kind=kinds, gpu=hardware, size=sizes, ranks=st.integers(2, 7))
def test_more_ranks_in_a_node_take_longer(kind: type[Collective], gpu: str, size: int, ranks: int) -> None:
    # in a mesh, more ranks have more links
    assert time_us(kind, size, ranks, 8, switched(cluster_of(gpu))) < time_us(
        kind, size, ranks + 1, 8, switched(cluster_of(gpu))
    )


@given(gpu=hardware, group=groups_of_ranks, size=sizes, half=st.sampled_from([ReduceScatter, AllGather]))
def test_all_reduce_takes_no_less_than_either_half_of_it(
    gpu: str, group: tuple[int, int], size: int, half: type[Collective]
) -> None:
    """Both by the same algorithm. NCCL has no tree for the halves where several ranks share a node, so that there a small
    all-reduce over many nodes is the faster, by its tree."""
    ranks, in_node = group
    cluster = cluster_of(gpu)
    whole, part = (
        algorithms_us(kind(size_bytes=size, ranks=ranks, ranks_per_node=in_node), cluster) for kind in (AllReduce, half)
    )
    assert all(whole[name] >= part[name] for name in part)
    if "tree" in part or "tree" not in whole:
        assert min(whole.values()) >= min(part.values())


@given(kind=st.sampled_from(KINDS), gpu=hardware, group=groups_of_ranks, size=sizes, wire=st.floats(0.05, 2.0))
def test_no_link_carries_more_than_its_peak(
    kind: type[Collective], gpu: str, group: tuple[int, int], size: int, wire: float
) -> None:
    """The ring bound of nccl-tests, S · factor / B, however efficient the wire is said to be."""
    ranks, in_node = (2, min(2, group[1])) if kind is SendRecv else group
    call = kind(size_bytes=size, ranks=ranks, ranks_per_node=in_node)
    cluster = cluster_of(gpu)
    cluster = replace(cluster, gpu=replace(cluster.gpu, efficiency={**cluster.gpu.efficiency, "wire": wire}))
    if ranks <= in_node:
        bound_us = call.bytes_on_wire() / cluster.intra_node.bytes_per_us()
    elif kind is AllToAll:
        bound_us = size * (ranks - in_node) / ranks / cluster.inter_node.bytes_per_us()
    else:
        bound_us = call.bytes_on_wire() / in_node / cluster.inter_node.bytes_per_us()
    slack = 1 + 1e-9
    assert all(us * slack >= bound_us for us in algorithms_us(call, cluster).values())


@pytest.mark.parametrize("kind", IN_GROUPS)
@pytest.mark.parametrize(
    ("ranks", "in_node", "tiers"),
    [(8, 8, {"intra_node"}), (64, 1, {"inter_node"}), (64, 8, {"intra_node", "inter_node"})],
)
def test_every_figure_of_the_tiers_that_a_group_crosses_counts(
    kind: type[Collective], ranks: int, in_node: int, tiers: set[str]
) -> None:
    cluster = cluster_of("h100-sxm")
    now = time_us(kind, 64 * MIB, ranks, in_node, cluster)
    for tier in ("intra_node", "inter_node"):
        # a tenth, because the tiers overlap: the faster of them may lose some of its speed for nothing
        slower = time_us(kind, 64 * MIB, ranks, in_node, with_link(cluster, tier, bandwidth=0.1))
        later = time_us(kind, 64 * MIB, ranks, in_node, with_link(cluster, tier, latency=2.0))
        chunked, unchunked = (
            time_us(kind, 64 * MIB, ranks, in_node, with_link(cluster, tier, bandwidth=0.01, chunks=chunks))
            for chunks in (2.0, 1.0)
        )
        assert (slower > now) is (tier in tiers)
        assert (later > now) is (tier in tiers)
        assert (chunked > unchunked) is (tier in tiers)


def test_send_recv_is_of_the_link_between_its_pair() -> None:
    cluster = cluster_of("h100-sxm")
    inside, between = (time_us(SendRecv, 64 * MIB, 2, in_node, cluster) for in_node in (2, 1))
    assert 6 < between / inside < 12
    assert time_us(SendRecv, 1, 2, 1, cluster) == pytest.approx(cluster.inter_node.latency_us, rel=0.02)
    assert time_us(SendRecv, 64 * MIB, 2, 2, with_link(cluster, "inter_node", latency=9, bandwidth=0.1)) == inside


@pytest.mark.parametrize("kind", KINDS)
def test_large_messages_scale_with_bytes_and_with_the_wire(kind: type[Collective]) -> None:
    cluster = cluster_of("h100-sxm")
    half = replace(cluster, gpu=replace(cluster.gpu, efficiency={**cluster.gpu.efficiency, "wire": 0.335}))
    now, twice = time_us(kind, 2**34, 2, 1, cluster), time_us(kind, 2**35, 2, 1, cluster)
    assert twice == pytest.approx(2 * now, rel=0.02)
    assert time_us(kind, 2**34, 2, 1, half) == pytest.approx(2 * now, rel=0.02)


def test_infiniband_reaches_four_fifths_of_its_peak() -> None:
    cluster = cluster_of("h100-sxm")
    bytes_per_us = 2**34 / time_us(SendRecv, 2**34, 2, 1, cluster)
    assert bytes_per_us / cluster.inter_node.bytes_per_us() == pytest.approx(0.8, abs=0.02)


def test_small_messages_leave_the_wire_unfilled() -> None:
    """Bus bandwidth of 8 A100s, measured: 68 GB/s at 2 MiB, 136 at 16 MiB, 200 at 128 MiB."""
    cluster = cluster_of("a100-80gb")
    for mib, gb_per_s in ((2, 68), (16, 136), (128, 200)):
        call = AllReduce(size_bytes=mib * MIB, ranks=8, ranks_per_node=8)
        assert call.bytes_on_wire() / collective_us(call, cluster) / 1e3 == pytest.approx(gb_per_s, rel=0.15)


def test_ranks_that_share_a_node_use_all_its_cards() -> None:
    times = algorithms_us(AllReduce(size_bytes=2**30, ranks=64, ranks_per_node=8), cluster_of("a100-80gb"))
    assert times["ring"] / times["hierarchical"] > 5
    assert min(times, key=times.__getitem__) == "hierarchical"


@pytest.mark.parametrize("in_node", [1, 8])
def test_trees_win_for_small_messages_over_many_nodes(in_node: int) -> None:
    times = algorithms_us(
        AllReduce(size_bytes=4096, ranks=64 * in_node, ranks_per_node=in_node), cluster_of("h100-sxm")
    )
    assert min(times, key=times.__getitem__) == "tree"
    assert times["tree"] < times["ring"] / 3


def test_collected_messages_win_for_small_all_to_alls_over_many_nodes() -> None:
    times = algorithms_us(AllToAll(size_bytes=4096, ranks=512, ranks_per_node=8), cluster_of("h100-sxm"))
    assert times["hierarchical"] < times["direct"] / 3


@given(kind=kinds, size=sizes, nodes=st.integers(2, 8), last=st.integers(1, 8))
def test_a_node_with_fewer_ranks_slows_the_group(kind: type[Collective], size: int, nodes: int, last: int) -> None:
    """All rings pass the node with the fewest cards, and its ranks have the most to send away."""
    ranks = 8 * (nodes - 1) + last
    cluster = cluster_of("a100-80gb")
    bound_us = kind(size_bytes=size, ranks=ranks, ranks_per_node=8).bytes_on_wire() / 8 / 25e3
    assert time_us(kind, size, ranks, 8, cluster) > bound_us


@given(kind=kinds, size=sizes, groups=st.integers(2, 8))
def test_groups_at_once_have_cards_of_their_own(kind: type[Collective], size: int, groups: int) -> None:
    alone = kind(size_bytes=size, ranks=4, ranks_per_node=1)
    assert collective_us(replace(alone, groups=groups), cluster_of("a100-80gb")) == collective_us(
        alone, cluster_of("a100-80gb")
    )


@pytest.mark.parametrize("kind", IN_GROUPS)
def test_a_group_of_one_has_nothing_to_say(kind: type[Collective]) -> None:
    assert time_us(kind, 2**30, 1, 1, cluster_of("a100-80gb")) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_gpus_are_answered_by_it_and_cpus_by_gloo(kind: type[Collective]) -> None:
    call = kind(size_bytes=MIB, ranks=2, ranks_per_node=2)
    gpu = cluster_of("h100-sxm")
    (time,) = SpeedOfLight().times([(call, "forward")], gpu)
    assert time.median_us == collective_us(call, gpu)
    assert math.log(time.high_us / time.median_us) == pytest.approx(HALF_WIDTH["intra_node"])
    cpu = load_cluster(hardware="cpu", nodes=1, gpus_per_node=2, cores=2, profile="no-such-profile")
    (time,) = SpeedOfLight().times([(call, "forward")], cpu)
    assert time == gloo_time(call, cpu)


def test_less_is_known_of_groups_between_nodes() -> None:
    inside, between = (AllReduce(size_bytes=1, ranks=8, ranks_per_node=g) for g in (8, 4))
    assert half_width(inside) < half_width(between)


@pytest.mark.parametrize(
    ("hardware", "nodes", "in_readme", "rdma_gb_per_s"),
    # DeepEP's README: copies for the token's own node count too
    [("h100-sxm", 2, 3.7, 90), ("h100-sxm", 4, 3.7, 61), ("h100-sxm", 8, 3.7, 51)],
)
def test_exchanges_between_nodes_take_as_long_as_published(
    hardware: str, nodes: int, in_readme: float, rdma_gb_per_s: float
) -> None:
    places = min(nodes, in_readme)
    row_bytes = 4096 * 7168 * 2
    published_us = places * row_bytes / (rdma_gb_per_s * 1e3)
    call = TokenExchange(
        size_bytes=round(7 * row_bytes),
        away_bytes=round(places * (nodes - 1) / nodes * row_bytes),
        ranks=8 * nodes,
        ranks_per_node=8,
    )
    assert collective_us(call, cluster_of(hardware)) == pytest.approx(published_us, rel=0.15)


@pytest.mark.parametrize(
    ("hardware", "nodes", "inside_mb", "away_mb", "published_us"),
    # README of Hybrid-EP: 16, 32 and 64 ranks of H100, kernels alone with 16 multiprocessors, 16-bit tokens there and back
    [("h100-sxm", 2, 339, 58.7, 1740), ("h100-sxm", 4, 373, 159, 3680), ("h100-sxm", 8, 390, 270, 6190)],
)
def test_hybrid_ep_forwards_what_comes_through_the_network(
    hardware: str, nodes: int, inside_mb: float, away_mb: float, published_us: float
) -> None:
    call = TokenExchange(
        size_bytes=round(inside_mb * 1e6),
        away_bytes=round(away_mb * 1e6),
        ranks=8 * nodes,
        ranks_per_node=8,
        library="hybridep",
    )
    assert collective_us(call, cluster_of(hardware)) == pytest.approx(published_us, rel=0.05)


@pytest.mark.parametrize(("ranks", "gb_per_s"), [(8, 717), (16, 631), (24, 602), (32, 588), (36, 578)])
def test_exchanges_in_a_rack_are_slower_with_more_ranks(ranks: int, gb_per_s: float) -> None:
    # README of Hybrid-EP: a GB200's rack, kernels alone with 16 multiprocessors, the mean of both directions
    sent = 1e9
    call = TokenExchange(
        size_bytes=round(sent * (ranks - 1) / ranks),
        away_bytes=0,
        ranks=ranks,
        ranks_per_node=ranks,
        library="hybridep",
    )
    assert collective_us(call, cluster_of("gb200")) == pytest.approx(sent / (gb_per_s * 1e3), rel=0.05)


@pytest.mark.parametrize(("hardware", "gb_per_s"), [("h200", 336), ("b200", 726)])
def test_exchanges_inside_a_node_take_as_long_as_published(hardware: str, gb_per_s: float) -> None:
    received = 6 * 4096 * 7168 * 2
    call = TokenExchange(size_bytes=received * 7 // 8, away_bytes=0, ranks=8, ranks_per_node=8)
    assert collective_us(call, cluster_of(hardware)) == pytest.approx(received / (gb_per_s * 1e3), rel=0.15)


@pytest.mark.parametrize(
    ("hardware", "ranks", "size_bytes", "measured_us"),
    [
        ("h100-sxm", 2, 2**14, 4.4),
        ("h100-sxm", 4, 2**17, 5.8),
        ("h100-sxm", 8, 2**21, 20.9),
        ("a100-80gb", 4, 2**17, 7.8),
        ("a100-80gb", 2, 2**21, 15.2),
        ("l40s", 2, 2**21, 116.8),
        ("l40s", 4, 2**20, 268.3),
        ("l40s", 8, 2**22, 5149.2),
    ],
)
def test_an_engines_own_all_reduce_is_near_published_tables(
    hardware: str, ranks: int, size_bytes: int, measured_us: float
) -> None:
    # AIConfigurator: vLLM 0.14 inside graphs, and NCCL where that does not run
    call = CustomAllReduce(size_bytes=size_bytes, ranks=ranks, ranks_per_node=ranks)
    assert collective_us(call, cluster_of(hardware)) == pytest.approx(measured_us, rel=0.25)


@pytest.mark.parametrize(("hardware", "a_node"), [("a100-80gb", 4), ("mi300x", 8)])
@pytest.mark.parametrize("kind", [*IN_GROUPS, SendRecv])
def test_a_pair_in_a_mesh_has_its_own_links_alone(kind: type[Collective], hardware: str, a_node: int) -> None:
    """Of a node joined pair by pair, two ranks have 1 / (n - 1) of the bandwidth, and all of them all; a switch gives a pair all of it."""
    mesh = load_cluster(hardware=hardware, nodes=2, gpus_per_node=a_node, profile="no-such-profile")
    joined = switched(mesh)
    large, ranks = 1024 * MIB, 2 if kind is SendRecv else a_node
    pair = time_us(kind, large, 2, 2, mesh) / time_us(kind, large, 2, 2, joined)
    assert pair == pytest.approx(a_node - 1, rel=0.1)
    if kind is not SendRecv:
        assert time_us(kind, large, ranks, ranks, mesh) == time_us(kind, large, ranks, ranks, joined)
    assert time_us(kind, large, 2, 1, mesh) == time_us(kind, large, 2, 1, joined)


def test_the_shipped_a100_of_eight_has_a_switch_for_a_part_of_its_gpus_too() -> None:
    for gpus in (8, 4):
        cluster = load_cluster(
            hardware="a100-80gb", nodes=1, gpus_per_node=gpus, node_size=8, profile="no-such-profile"
        )
        assert cluster.link_in_node(2) == cluster.intra_node
    with pytest.raises(ConfigError, match="node_size: 4 is less than the 8 GPUs per node"):
        load_cluster(hardware="a100-80gb", nodes=1, gpus_per_node=8, node_size=4, profile="no-such-profile")


# Groups that nobody sampled: the two tiers, times what sampled groups of the same tier take beside them.

CLUSTER = load_cluster(hardware="a100-80gb", nodes=4, gpus_per_node=8, profile="none")
SLOWER = 3.0
WITHIN = AllReduce(size_bytes=2**24, ranks=8, ranks_per_node=8)
ACROSS = AllReduce(size_bytes=2**24, ranks=16, ranks_per_node=8)


class SampledInside:
    """Groups of eight inside a node, three times as slow as the network says; a guess of 1 µs for every other."""

    def times(self, calls: Sequence[tuple[Call, Phase]], cluster: Cluster) -> list[Times | None]:
        return [self._time(call, cluster) for call, _ in calls]

    def _time(self, call: Call, cluster: Cluster) -> Times | None:
        if not isinstance(call, AllReduce):
            return None
        known = call.ranks == call.ranks_per_node == 8
        sampled = known and call.size_bytes <= 2**26
        time_us = SLOWER * collective_us(call, cluster) if known else 1.0
        source: Source = "measured" if sampled else "extrapolated"
        return Times(median_us=time_us, low_us=time_us / 2, high_us=time_us * 2, source=source)


def answered(call: Collective) -> Times | None:
    fitted = SampledInside()
    return WithinSamples(fitted, CollectiveCorrection(fitted)).times([(call, "forward")], CLUSTER)[0]


def test_a_sampled_group_is_answered_by_its_samples_at_any_size() -> None:
    for size_bytes in (2**20, 2**30):
        call = replace(WITHIN, size_bytes=size_bytes)
        time = answered(call)
        assert time is not None
        assert time.median_us == pytest.approx(SLOWER * collective_us(call, CLUSTER))


@pytest.mark.parametrize(
    "call", [replace(WITHIN, ranks=4, ranks_per_node=4), replace(WITHIN, ranks=2, ranks_per_node=2)]
)
def test_another_group_on_the_tier_is_as_much_slower(call: Collective) -> None:
    time = answered(call)
    assert time is not None
    assert time.source == "extrapolated"
    assert time.median_us == pytest.approx(SLOWER * collective_us(call, CLUSTER))


def test_another_kind_of_collective_takes_the_ratio_of_all() -> None:
    call = AllGather(size_bytes=2**24, ranks=8, ranks_per_node=8)
    corrected = CollectiveCorrection(SampledInside()).time(call, CLUSTER)
    assert corrected is not None
    assert corrected.median_us == pytest.approx(SLOWER * collective_us(call, CLUSTER))


def test_a_tier_that_nobody_sampled_is_left_to_the_network() -> None:
    assert answered(ACROSS) is None
