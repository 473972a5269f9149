"""Collectives of one group and of several at once."""

from dataclasses import replace

import pytest
import torch

from sampling.call import make_call
from sampling.collectives.kinds import AllGather, AllReduce, AllToAll, Collective, CustomAllReduce, ReduceScatter
from sampling.errors import SkippedError
from sampling.hardware.cluster import Cluster, load_cluster
from sampling.torch_work.build import build
from sampling.torch_work.collectives.kinds import OPERATORS, Buffers, kernel_for

PAIR = AllReduce(size_bytes=4096, ranks=2, ranks_per_node=2)


@pytest.fixture(scope="module")
def eight() -> Cluster:
    return load_cluster(hardware="h100-sxm", nodes=2, gpus_per_node=8, profile="test")


def test_rows_from_before_groups_are_of_one_group() -> None:
    assert make_call("all_reduce", {"size_bytes": 4096, "ranks": 2, "ranks_per_node": 2}) == PAIR


def test_one_group_is_priced_as_before_there_were_several(eight: Cluster) -> None:
    assert "wire_of_others" not in PAIR.terms("forward", eight)


@pytest.mark.parametrize(
    ("ranks", "ranks_per_node", "groups", "others"),
    [
        (2, 2, 4, 3),  # pairs of neighbours on one node
        (2, 2, 8, 3),  # four of them on either node
        (2, 1, 8, 7),  # across nodes, each GPU with its twin
        (8, 8, 2, 0),  # whole nodes share none
    ],
)
def test_groups_wait_at_most_for_those_that_share_their_nodes(
    eight: Cluster, ranks: int, ranks_per_node: int, groups: int, others: int
) -> None:
    call = replace(PAIR, ranks=ranks, ranks_per_node=ranks_per_node, groups=groups)
    terms = call.terms("forward", eight)
    assert terms["wire_of_others"] == pytest.approx(others * terms["wire"])


@pytest.mark.parametrize("kind", [AllReduce, AllGather, ReduceScatter, AllToAll])
def test_buffers_take_the_memory_that_is_planned_for_them(kind: type[Collective]) -> None:
    call = kind(size_bytes=4096, ranks=4, ranks_per_node=4)
    buffers = Buffers(torch.device("cpu"), call.size_bytes, call.ranks, call.EXTRA_BUFFER)
    distinct = {tensor.data_ptr(): tensor.nbytes for tensor in (buffers.whole, buffers.other, buffers.shard)}
    assert sum(distinct.values()) == call.buffer_bytes()


# A serving engine's all-reduce: which kernel it takes, and what its sizes cost.

KIB = 2**10


@pytest.mark.parametrize(
    ("kib", "ranks", "kernel"),
    [
        (8192, 2, "one_shot"),
        (511, 4, "one_shot"),
        (512, 4, "two_shot"),
        (255, 6, "one_shot"),
        (256, 8, "two_shot"),
        (8193, 2, "library"),
        (8, 16, "library"),
    ],
)
def test_the_kernel_is_vllms(kib: int, ranks: int, kernel: str) -> None:
    assert kernel_for(kib * KIB, ranks) == kernel
    assert kernel_for(kib * KIB, ranks, peers=False) == "library"


def test_torch_has_both_kernels() -> None:
    assert all(hasattr(torch.ops.symm_mem, name) for name in OPERATORS)


def test_a_cpu_leaves_it_out_and_says_why() -> None:
    with pytest.raises(SkippedError, match="a cpu device"):
        build(CustomAllReduce(size_bytes=8192, ranks=2, ranks_per_node=2), torch.device("cpu"))


def test_it_starts_once_however_many_ranks_there_are() -> None:
    cluster = load_cluster(hardware="h100-sxm", nodes=1, gpus_per_node=8, profile="test")
    two, eight = (
        CustomAllReduce(size_bytes=8192, ranks=ranks, ranks_per_node=ranks).terms("forward", cluster)
        for ranks in (2, 8)
    )
    ring = AllReduce(size_bytes=8192, ranks=8, ranks_per_node=8).terms("forward", cluster)
    assert two["latency"] == eight["latency"] < ring["latency"]
    assert eight["wire"] == ring["wire"] > two["wire"]
