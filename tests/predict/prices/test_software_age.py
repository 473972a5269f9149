"""The month of the software: how long a young architecture's kernels take before it is settled."""

from __future__ import annotations

import pytest

from predict.prices.conditions import months_to_settle
from predict.rank.share import RankShare
from predict.workload.layer import SPREAD, launchings
from tests.predict.workload.parallel_runs import BATCH, estimated, made


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
