"""Factors on the times of single calls: what samples contain already is not put on them once more."""

import pytest

from predict.prices.conditions import EAGER_PASSES, conditions_of, months_to_settle
from predict.prices.published_constants import CONSTANTS
from predict.rank.share import RankShare
from predict.run.execution import Execution
from predict.workload.layer import SPREAD, launchings
from regressors.bank.times import Source, Times
from sampling.arithmetic.operator import Operator
from sampling.hardware.cluster import load_cluster
from sampling.operators.memory_bound import Gelu, RoPE, SwiGLU
from sampling.operators.vocabulary import CrossEntropy
from tests.predict.workload.parallel_runs import BATCH, estimated, made

ROPE = RoPE(dtype="bf16", batch=1, seq_len=512, heads=8, head_dim=64)
GELU = Gelu(dtype="bf16", tokens=512, width=1024)
SWIGLU = SwiGLU(dtype="bf16", tokens=512, width=1024)
LOSS = CrossEntropy(dtype="bf16", tokens=512, vocab=1024)


@pytest.mark.parametrize(
    ("call", "source", "factor"),
    [
        (ROPE, "analytic", EAGER_PASSES[RoPE].value),
        (SWIGLU, "analytic", EAGER_PASSES[SwiGLU].value),
        (GELU, "analytic", CONSTANTS["EAGER"].value),
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


# The month of the software: how long a young architecture's kernels take before it is settled.


@pytest.mark.parametrize(
    ("architecture", "stack", "months"),
    [
        ("blackwell", "2025-09", 9),
        ("blackwell", "2026-06", 0),
        ("blackwell", "2027-01", 0),
        ("blackwell", "2024-06", 16),
        ("blackwell", "", 0),
        ("hopper", "2025-09", 0),
    ],
)
def test_months_until_software_is_settled(architecture: str, stack: str, months: int) -> None:
    assert months_to_settle(architecture, stack) == months


def test_only_mixtures_have_launches_of_experts_and_a_graph_of_the_step_has_none() -> None:
    rank = RankShare(run=made("deepseek-v3", plan__dp=8, plan__ep=8, execution__expert_launch_us=1000))
    dense, *_, sparse = rank.model.kinds()
    assert launchings(rank, dense) == {}
    us = {phase: each.share * each.mixture_us for phase, each in launchings(rank, sparse).items()}
    assert us["backward"] == us["backward_input"] + us["backward_weight"] == 2 * us["forward"] > 0
    graphed = RankShare(run=made("deepseek-v3", plan__dp=8, plan__ep=8, execution__cuda_graphs="full"))
    assert launchings(graphed, sparse) == {}


def test_the_host_launches_the_ends_of_a_model_too() -> None:
    floor_us, layers = 50_000.0, 4
    settings = {"plan__tp": 8, "plan__recompute": "none", "execution__launch_floor_us": floor_us}
    launched, graphed = (
        estimated(made("llama3-70b", layers, **settings, execution__cuda_graphs=graphs)).median_us
        for graphs in ("none", "full")
    )
    phases = 2 * layers + sum(SPREAD.shares("embedding") + SPREAD.shares("head"))
    assert launched == pytest.approx(BATCH["global"] * phases * floor_us, rel=0.03)
    assert graphed < launched / 10
