"""A step by classes: the bars add up to it, and each may be shorter or longer than its median."""

from typing import Any

import pytest

from predict.ledger.waterfall import waterfall
from tests.predict.workload.parallel_runs import estimated, made


@pytest.mark.parametrize("plan", [{}, {"plan__tp": 2, "plan__dp": 2}, {"plan__pp": 2}])
def test_bars_add_up_to_the_step_and_have_bounds_on_both_sides(plan: dict[str, Any]) -> None:
    prediction = estimated(made("llama3-8b", 4, execution__stragglers=False, **plan))
    bars = waterfall(prediction)
    assert sum(bar.time_us for bar in bars) == pytest.approx(prediction.median_us)
    stated = "runtime"  # a time that a framework states has no bounds of its own
    assert [bar for bar in bars if bar.name != stated and not bar.low_us < bar.time_us < bar.high_us] == []
