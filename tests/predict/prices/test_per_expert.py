"""The fixed time of products of experts one by one."""

from __future__ import annotations

import pytest

from predict.prices.kernels import operator_us
from sampling.call import Phase
from sampling.hardware.cluster import Gpu, load_cluster
from sampling.operators.experts import IN_GRAPH, PER_EXPERT, GroupedGemm


def gpu_of(hardware: str) -> Gpu:
    return load_cluster(hardware=hardware, nodes=1, gpus_per_node=8, profile="no-such-profile").gpu


def products(groups: int, rows: int = 32768, dtype: str = "bf16", kernel: str = PER_EXPERT) -> GroupedGemm:
    return GroupedGemm(dtype=dtype, groups=groups, rows=rows, n=4096, k=2048, distribution="balanced", kernel=kernel)


def time_us(call: GroupedGemm, phase: Phase = "forward", hardware: str = "h100-sxm") -> float:
    return operator_us(call, phase, gpu_of(hardware))[0]


def test_more_experts_with_as_many_rows_take_longer() -> None:
    few, many = time_us(products(8)), time_us(products(64))
    assert many > few + 56 * 3


def test_fp8_is_quantised_expert_by_expert_outside_of_a_graph() -> None:
    eager, graphed = (time_us(products(32, dtype="fp8", kernel=kernel)) for kernel in (PER_EXPERT, IN_GRAPH))
    assert eager - graphed == pytest.approx(32 * 5 * 4.0)
    assert time_us(products(32)) == time_us(products(32, kernel=IN_GRAPH))


def test_halves_of_the_backward_add_up() -> None:
    call = products(16, dtype="fp8")
    halves: tuple[Phase, Phase] = ("backward_input", "backward_weight")
    assert time_us(call, "backward") == pytest.approx(sum(time_us(call, half) for half in halves))
