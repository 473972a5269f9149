"""Causes in compute: ranks held against one another."""

from __future__ import annotations

import pytest

from predict.measured_runs.explain.causes import slow_ranks
from predict.measured_runs.explain.measured import MeasuredRank, MeasuredStep
from predict.measured_runs.explain.predicted import PredictedStep
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import Gelu

GEMM, GELU = Gemm(dtype="fp32", m=8, n=8, k=8), Gelu(dtype="fp32", tokens=8, width=8)


def rank(number: int, *, forward_us: float, backward_us: float, gelu_us: float = 10.0) -> MeasuredRank:
    """A rank that runs a product twice and a pass once; a trace counts the runs of forwards alone."""
    return MeasuredRank(
        rank=number,
        steps=1,
        step_us=1000.0,
        headings={"gemm": forward_us + backward_us, "gelu": gelu_us},
        kernels_us=forward_us + backward_us + gelu_us,
        matched_us=forward_us + backward_us + gelu_us,
        calls={
            (GEMM, "forward"): (2.0, forward_us),
            (GEMM, "backward"): (0.0, backward_us),
            (GELU, "forward"): (1.0, gelu_us),
        },
        operators={},
        messages={},
        longest_idle_us=0.0,
    )


@pytest.mark.parametrize(
    ("forward_us", "backward_us", "gelu_us", "told"),
    [
        (100.0, 600.0, 10.0, []),
        (300.0, 400.0, 10.0, []),  # a forward that took longer, a backward that made up for it
        (100.0, 600.0, 500.0, []),  # one short call that was held up, beside the many that were not
        (200.0, 1200.0, 20.0, [pytest.approx(710.0)]),
    ],
)
def test_a_rank_is_slow_where_its_forwards_and_backwards_together_are(
    forward_us: float, backward_us: float, gelu_us: float, told: list[float]
) -> None:
    measured = MeasuredStep(
        ranks=(
            rank(0, forward_us=100.0, backward_us=600.0),
            rank(1, forward_us=forward_us, backward_us=backward_us, gelu_us=gelu_us),
        ),
        rule="",
        on_device=False,
    )
    predicted = PredictedStep(step_us=1000.0, headings={}, calls={}, messages_us={}, doubts={})
    assert [finding.cost_us for finding in slow_ranks(predicted, measured)] == told
