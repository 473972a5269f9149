"""Products of experts one by one, beside SimuMax's measurements of them."""

import csv
import math
from statistics import fmean

from predict.prices.kernels import operator_us
from sampling.call import Phase
from sampling.hardware.cluster import load_cluster
from sampling.operators.experts import PER_EXPERT, GroupedGemm
from tests.oracles.shared import SHARED

TABLE = SHARED / "data" / "simumax-operator-efficiency.csv"
HARDWARE = {"a100_pcie": "a100-80gb", "b200_bf16_ceperm": "b200"}
PHASES: dict[str, Phase] = {"fwd": "forward", "bwd_grad_act": "backward_input", "bwd_grad_w": "backward_weight"}


def test_products_take_as_long_as_simumax_measured() -> None:
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
            gpu = load_cluster(hardware=HARDWARE[row["system"]], nodes=1, gpus_per_node=8, profile="none").gpu
            errors.append(math.log(operator_us(call, PHASES[shape["stage"]], gpu)[0] / measured_us))
    assert len(errors) == 48
    assert fmean(map(abs, errors)) < 0.13
    assert abs(fmean(errors)) < 0.05
