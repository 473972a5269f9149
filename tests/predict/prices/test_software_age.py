"""The month of the software: how long a young architecture's kernels take before it is settled."""

from __future__ import annotations

import pytest

from predict.prices.conditions import months_to_settle
from predict.workload.layers.launches import launch_floors_us
from predict.workload.rank.share import RankShare
from tests.predict.workload.parallel_runs import made


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
    assert set(launch_floors_us(rank, dense).values()) == {0.0}
    floors = launch_floors_us(rank, sparse)
    assert floors["backward"] == floors["backward_input"] + floors["backward_weight"] == 2 * floors["forward"]
    graphed = RankShare(run=made("deepseek-v3", plan__dp=8, plan__ep=8, execution__cuda_graphs="full"))
    assert set(launch_floors_us(graphed, sparse).values()) == {0.0}
