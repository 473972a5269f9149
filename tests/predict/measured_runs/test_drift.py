"""Changes in recorded steps: found where they are, seldom where there are none."""

import numpy as np
import pytest
from numpy.typing import NDArray

from predict.measured_runs.history import changes, explanations
from predict.run.calibration_terms import TERMS

NOISE = 0.02


def series(random: np.random.Generator, runs: int, configurations: int) -> tuple[list[float], list[int]]:
    """Runs of configurations that are each off by something of their own."""
    of = random.integers(0, configurations, runs)
    return list(random.normal(0, 0.1, configurations)[of] + random.normal(0, NOISE, runs)), of.tolist()


def test_histories_without_a_change_seldom_look_changed() -> None:
    random = np.random.default_rng(0)
    alarms = sum(bool(changes(*series(random, 12, 2))) for _ in range(60))
    assert alarms <= 3  # of 0.6 expected; more in 1 of 300 such tests


@pytest.mark.parametrize("shift", [0.06, -0.06])
def test_a_change_is_found_where_it_is(shift: float) -> None:
    random = np.random.default_rng(2)
    near, shifts = 0, []
    for _ in range(10):
        logs, of = series(random, 25, 2)
        found = changes([log + shift * (run >= 15) for run, log in enumerate(logs)], of)
        shifts += [each.shift for each in found]
        near += any(abs(each.place - 15) <= 1 and each.chance <= 0.01 for each in found)
    assert near >= 7  # 9 of 10 expected
    assert np.median(shifts) == pytest.approx(shift, abs=0.01)


def test_a_change_too_small_to_matter_is_not_told() -> None:
    assert changes([0.001 * (run >= 15) for run in range(25)], [0] * 25) == []


def test_two_changes_are_both_found() -> None:
    logs, of = series(np.random.default_rng(1), 40, 1)
    found = changes([log + 0.1 * (12 <= run < 26) for run, log in enumerate(logs)], of)
    assert [(each.place, round(each.shift, 1)) for each in found] == [(12, 0.1), (26, -0.1)]


def test_other_configurations_are_not_a_change() -> None:
    """Runs before and after that have no configuration in common tell nothing of the cluster."""
    random = np.random.default_rng(3)
    logs = [*random.normal(0, NOISE, 10), *random.normal(0.2, NOISE, 10)]
    assert changes(logs, ["a"] * 10 + ["b"] * 10) == []
    assert changes(logs, list(range(20))) == changes(logs[:2], ["a", "a"]) == changes([], []) == []


def test_the_term_that_the_moved_steps_depend_on_explains_a_change() -> None:
    slopes = np.zeros((3, len(TERMS)))
    slopes[:, TERMS.index("products")] = [0.8, 0.7, 0.5]
    slopes[:, TERMS.index("between_nodes")] = [0.05, 0.15, 0.4]

    def respond(term: str, log: float) -> NDArray[np.float64]:
        moved: NDArray[np.float64] = slopes[:, TERMS.index(term)] * log
        return moved

    def explained(shifts: list[float]) -> list[str]:
        found = explanations(np.array(shifts), np.full(3, 4.0), respond, NOISE)
        return [each.term for each in found]

    assert explained([0.02, 0.06, 0.16]) == ["between_nodes"]
    assert explained([0.064, 0.056, 0.04])[0] == "products"
    assert explained([-2.0, -2.0, -2.0]) == []  # beyond every bound
