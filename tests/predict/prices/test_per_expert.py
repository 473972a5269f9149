"""Products of experts one by one: their fixed time, and SimuMax's measurements of them."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from statistics import fmean

import pytest

from predict.prices.kernels import operator_us
from sampling.call import Phase
from sampling.hardware.cluster import Gpu, load_cluster
from sampling.operators.experts import IN_GRAPH, PER_EXPERT, GroupedGemm

TABLE = Path(__file__).parents[3].parent / "shared/data/simumax-operator-efficiency.csv"
HARDWARE = {"a100_pcie": "a100-80gb", "b200_bf16_ceperm": "b200"}
PHASES: dict[str, Phase] = {"fwd": "forward", "bwd_grad_act": "backward_input", "bwd_grad_w": "backward_weight"}


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


def test_products_take_as_long_as_simumax_measured() -> None:
    if not TABLE.exists():
        pytest.skip(f"{TABLE} is not beside the clone")
    errors = []
    with TABLE.open() as file:
        for row in csv.DictReader(file):
            shape = dict(part.split("=") for part in row["shape"].split(", ")) if row["op"] == "group_matmul" else {}
            if shape.get("main_grad_dtype") != "fp32" or shape["stage"] == "bwd_grad_w":
                continue  # weight gradients read and write the fp32 sum, which is priced apart
            groups, rows, n, k = (int(shape[name]) for name in ("ng", "M", "N", "K"))
            measured_us = 2 * groups * rows * n * k / (float(row["peak_tflops"]) * 1e6 * float(row["efficiency"]))
            call = GroupedGemm(
                dtype="bf16",
                groups=groups,
                rows=groups * rows,
                n=n,
                k=k,
                distribution="balanced",
                kernel=PER_EXPERT,
            )
            errors.append(math.log(time_us(call, PHASES[shape["stage"]], HARDWARE[row["system"]]) / measured_us))
    assert len(errors) == 48
    assert fmean(map(abs, errors)) < 0.13
    assert abs(fmean(errors)) < 0.05
