"""A serving engine's all-reduce: which kernel it takes, and what its sizes cost."""

from __future__ import annotations

import pytest
import torch

from sampling.collectives.kinds import AllReduce, CustomAllReduce
from sampling.errors import SkippedError
from sampling.hardware.cluster import load_cluster
from sampling.torch_work.build import build
from sampling.torch_work.collectives.kinds import OPERATORS, kernel_for

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
