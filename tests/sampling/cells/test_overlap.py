"""Compute beside communication: what is asked, what it is set against, and that the background never stops too soon."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sampling.cells.overlap import Overlap
from sampling.collectives.kinds import KINDS, AllGather
from sampling.hardware.cluster import Cluster
from sampling.operators.gemm import Gemm
from sampling.torch_work.cells.overlap import Background

CALL = Overlap(dtype="fp32", m=64, n=128, k=256, collective="all_gather", size_bytes=4096, ranks=4, ranks_per_node=2)
GEMM = Gemm(dtype="fp32", m=64, n=128, k=256)
GATHER = AllGather(size_bytes=4096, ranks=4, ranks_per_node=2)
CPU = torch.device("cpu")


def test_each_phase_has_the_terms_of_what_it_times(two_ranks: Cluster) -> None:
    assert CALL.terms("compute_beside", two_ranks) == GEMM.terms("forward", two_ranks)
    assert CALL.terms("communication_beside", two_ranks) == GATHER.terms("forward", two_ranks)


def test_every_collective_can_be_beside() -> None:
    assert CALL.communication == GATHER
    for kind in KINDS:
        assert isinstance(replace(CALL, collective=kind.NAME).communication, kind)


def test_the_background_runs_until_it_is_halted_and_then_to_the_number_agreed_on() -> None:
    pieces: list[int] = []
    background = Background(lambda: pieces.append(len(pieces)), CPU)
    background.wait_until_running()
    begun = background.halt()
    assert begun >= 1
    background.finish(begun + 3)
    assert len(pieces) == begun + 3


def test_what_fails_in_the_background_is_told_in_the_foreground() -> None:
    def fail() -> None:
        raise RuntimeError("the wire broke")

    background = Background(fail, CPU)
    with pytest.raises(RuntimeError, match="the wire broke"):
        background.wait_until_running()
