"""A few seeds of `tests/bench/synthetic_machine.py`: the whole way from the timer to the step, on machines of known times."""

import pytest

from tests.bench.synthetic_machine import run_of, simulate


@pytest.mark.parametrize(("kind", "most"), [("none", 0.02), ("drifting pace", 0.04), ("heavy tails", 0.04)])
def test_a_step_is_predicted_at_its_pace(kind: str, most: float) -> None:
    for seed in (0, 1):
        assert abs(simulate(run_of("cpu"), kind, seed).error) < most


def test_a_step_of_a_gpu_whose_clock_falls_is_predicted_at_its_pace() -> None:
    assert abs(simulate(run_of("gpu"), "clocks that fall", 0).error) < 0.04
