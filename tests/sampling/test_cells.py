"""The matrices of a layer, and what tensor parallelism leaves of them on a rank."""

from dataclasses import replace

import pytest
import torch

from sampling.cells.matrices import Matrix, attention_matrices, mlp_matrices, products_on_rank
from sampling.cells.overlap import Overlap
from sampling.collectives.kinds import KINDS, AllGather
from sampling.hardware.cluster import Cluster
from sampling.operators.gemm import Gemm
from sampling.torch_work.cells.overlap import Background

ATTENTION = attention_matrices(hidden=1024, heads=8, kv_heads=2, head_dim=128, qkv_bias=True)


def test_attention_is_one_product_in_and_one_out() -> None:
    assert products_on_rank(ATTENTION, 1) == {"qkv": (1024 + 2 * 256, 1024), "proj": (1024, 1024)}
    assert products_on_rank(ATTENTION, 2) == {"qkv": (512 + 2 * 128, 1024), "proj": (1024, 512)}


def test_each_rank_holds_a_key_head_where_there_are_fewer_than_ranks() -> None:
    assert products_on_rank(ATTENTION, 4)["qkv"] == (256 + 2 * 128, 1024)
    _, key, _, _ = ATTENTION
    assert (key.replicated_parameters(2), key.split_parameters(2)) == (0, 256 * 1025)
    assert (key.replicated_parameters(4), key.split_parameters(4)) == (128 * 1025, 0)


def test_a_gate_doubles_the_first_product() -> None:
    gated, plain = (mlp_matrices(hidden=64, width=256, gated=gated) for gated in (True, False))
    assert products_on_rank(gated, 4) == {"up": (2 * 64, 64), "down": (64, 64)}
    assert sum(matrix.elements for matrix in gated) == 3 * 64 * 256
    assert sum(matrix.elements for matrix in plain) == 2 * 64 * 256


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_a_matrix_that_is_not_split_is_whole_on_every_rank(tp: int) -> None:
    router = Matrix(product="router", outputs=16, inputs=64, bias=True)
    assert router.on_rank(tp) == router
    assert (router.replicated_parameters(tp), router.split_parameters(tp)) == (16 * 65, 0)


def test_no_width_stays_none_on_a_rank() -> None:
    assert products_on_rank(mlp_matrices(hidden=64, width=0, gated=True), 2) == {"up": (0, 64), "down": (64, 0)}


# Compute beside communication: what is asked, what it is set against, and that the background never stops too soon.

CALL = Overlap(dtype="fp32", m=64, n=128, k=256, collective="all_gather", size_bytes=4096, ranks=4, ranks_per_node=2)
GEMM = Gemm(dtype="fp32", m=64, n=128, k=256)
GATHER = AllGather(size_bytes=4096, ranks=4, ranks_per_node=2)
DEVICE = torch.device("cpu")


def test_each_phase_has_the_terms_of_what_it_times(two_ranks: Cluster) -> None:
    assert CALL.terms("compute_beside", two_ranks) == GEMM.terms("forward", two_ranks)
    assert CALL.terms("communication_beside", two_ranks) == GATHER.terms("forward", two_ranks)


def test_every_collective_can_be_beside() -> None:
    assert CALL.communication == GATHER
    for kind in KINDS:
        assert isinstance(replace(CALL, collective=kind.NAME).communication, kind)


def test_the_background_runs_until_it_is_halted_and_then_to_the_number_agreed_on() -> None:
    pieces: list[int] = []
    background = Background(lambda: pieces.append(len(pieces)), DEVICE)
    background.wait_until_running()
    begun = background.halt()
    assert begun >= 1
    background.finish(begun + 3)
    assert len(pieces) == begun + 3


def test_what_fails_in_the_background_is_reported_in_the_foreground() -> None:
    def fail() -> None:
        raise RuntimeError("the wire broke")

    background = Background(fail, DEVICE)
    with pytest.raises(RuntimeError, match="the wire broke"):
        background.wait_until_running()
