"""Factors on the times of single calls: what samples contain already is not put on them once more."""

from __future__ import annotations

import pytest

from predict.prices.conditions import EAGER_PASSES, conditions_of
from predict.prices.published_constants import EAGER
from predict.run.execution import Execution
from regressors.bank.times import Source, Times
from sampling.arithmetic.operator import Operator
from sampling.hardware.cluster import load_cluster
from sampling.operators.elementwise import Gelu, RoPE, SwiGLU
from sampling.operators.vocabulary import CrossEntropy

ROPE = RoPE(dtype="bf16", batch=1, seq_len=512, heads=8, head_dim=64)
GELU = Gelu(dtype="bf16", tokens=512, width=1024)
SWIGLU = SwiGLU(dtype="bf16", tokens=512, width=1024)
LOSS = CrossEntropy(dtype="bf16", tokens=512, vocab=1024)


@pytest.mark.parametrize(
    ("call", "source", "factor"),
    [
        (ROPE, "analytic", EAGER_PASSES[RoPE].value),
        (SWIGLU, "analytic", EAGER_PASSES[SwiGLU].value),
        (GELU, "analytic", EAGER.value),
        (LOSS, "analytic", EAGER_PASSES[CrossEntropy].value),
        (SWIGLU, "measured", 1.0),
        (SWIGLU, "transferred", 1.0),
    ],
)
def test_eager_kernels_slow_down_what_was_not_sampled(call: Operator, source: Source, factor: float) -> None:
    gpu = load_cluster(hardware="h200", nodes=1, gpus_per_node=1, profile="nowhere").gpu
    time = Times(median_us=10.0, low_us=9.0, high_us=11.0, source=source)
    eager, fused = (
        conditions_of(gpu, Execution(framework="fsdp", elementwise=how)).factor(call, time).value
        for how in ("eager", "fused")
    )
    assert eager == factor
    assert fused == 1.0


def test_a_fused_loss_is_no_slower_in_an_eager_framework() -> None:
    gpu = load_cluster(hardware="h200", nodes=1, gpus_per_node=1, profile="nowhere").gpu
    time = Times(median_us=10.0, low_us=9.0, high_us=11.0, source="analytic")
    assert conditions_of(gpu, Execution(elementwise="eager", fuse_loss=True)).factor(LOSS, time).value == 1.0
