"""Messages of a trace by their kinds and groups."""

import pytest

from predict.measured_runs.explain.messages import heading_of_message, kind_of
from predict.run.plan import Plan
from predict.step.breakdown import CP, DP, EP, P2P, TP


def test_an_exchange_without_a_name_is_the_experts_where_nothing_else_sends() -> None:
    assert kind_of("ncclDevKernel_SendRecv") == "sendrecv"
    for plan, heading in ((Plan(dp=8, ep=8), EP), (Plan(dp=4, pp=2, ep=4), P2P), (Plan(cp=2, dp=4), CP)):
        assert heading_of_message("sendrecv", plan) == heading


@pytest.mark.parametrize(
    ("plan", "ranks", "heading"),
    [
        (Plan(cp=2, dp=2, cp_method="all_gather", zero=3), (0, 1), CP),
        (Plan(cp=2, dp=2, cp_method="all_gather", zero=3), (0, 1, 2, 3), DP),
        (Plan(cp=2, dp=2, cp_method="all_gather", zero=3), (0, 2), DP),
        (Plan(tp=2, cp=2, dp=2, cp_method="all_gather"), (1, 3), CP),
        (Plan(tp=2, cp=2, dp=2, cp_method="all_gather"), (2, 3), TP),
        (Plan(cp=2, cp_method="all_gather"), (), CP),
        (Plan(cp=2, cp_method="all_gather", zero=1), (), DP),
        (Plan(cp=2), (), DP),
    ],
)
def test_a_gather_is_of_keys_where_its_group_or_an_unsharded_state_says_so(
    plan: Plan, ranks: tuple[int, ...], heading: str
) -> None:
    assert heading_of_message("allgather", plan, ranks) == heading
