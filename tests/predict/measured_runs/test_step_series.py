"""What the steps of a log show by themselves, on series made up for it."""

import math
import random

import pytest

from predict.measured_runs.step_series import seen_in

QUIET = 0.01


def series(factor: object, steps: int = 200, noise: float = QUIET) -> list[tuple[int, float]]:
    """Steps of a second; `factor` is of the step's number."""
    chance = random.Random(7)
    return [(step, 1e6 * factor(step) * (1 + noise * chance.gauss(0, 1))) for step in range(1, steps + 1)]  # type: ignore[operator]


def test_even_steps_show_nothing() -> None:
    assert seen_in(series(lambda step: 1.0)) == ()
    assert seen_in(series(lambda step: 1.0, noise=0.05)) == ()
    assert seen_in(series(lambda step: 5.0 if step < 8 else 1.0)) == (), "warm-up is no pause"
    assert seen_in(series(lambda step: 1.0)[:8]) == ()


@pytest.mark.parametrize(
    ("cause", "factor", "cost"),
    [
        ("saves", lambda step: 11.0 if step % 50 == 0 else 1.0, 0.2),
        ("data_stalls", lambda step: 3.0 if step % 8 == 0 else 1.0, 0.25),
        ("data_stalls", lambda step: 3.0 if step in (31, 47, 58, 111, 113, 160, 178) else 1.0, 7 * 2 / 180),
        ("drift", lambda step: 1 + step / 1000, 0.065),
    ],
    ids=["saves", "workers that take turns", "odd pauses", "slower and slower"],
)
def test_each_series_names_its_cause_and_what_it_costs(cause: str, factor: object, cost: float) -> None:
    (seen,) = seen_in(series(factor))
    assert seen.cause == cause
    assert seen.cost_us == pytest.approx(1e6 * cost, rel=0.15)


def test_a_slow_side_that_is_long_is_of_a_rank_that_comes_late() -> None:
    chance = random.Random(3)
    (seen,) = seen_in(series(lambda step: 1 + chance.expovariate(5)))
    assert seen.cause == "stragglers"
    assert seen.cost_us == pytest.approx(0.18e6, rel=0.3)
    assert seen.over_median_us == pytest.approx(0.2e6 * (1 - math.log(2)), rel=0.3), "its median has the rest"


def test_a_log_that_states_every_tenth_step_shows_what_happens_every_fifty() -> None:
    thin = [
        (step, time_us) for step, time_us in series(lambda step: 6.0 if step % 50 == 0 else 1.0, 2000) if step % 10 == 0
    ]
    (seen,) = seen_in(thin)
    assert (seen.cause, "Every 50 steps" in seen.text) == ("saves", True)


def test_irregular_pauses_in_a_log_that_states_every_twentieth_step_are_no_checkpoints() -> None:
    chance = random.Random(11)
    thin = [(20 * line, time_us) for line, time_us in series(lambda line: 4.0 if chance.random() < 0.1 else 1.0)]
    (seen,) = seen_in(thin)
    assert (seen.cause, "at irregular steps" in seen.text) == ("data_stalls", True)
