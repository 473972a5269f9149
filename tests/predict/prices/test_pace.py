"""What the facts of a profile about its machine's pace make of a step's interval, and of readings beside it."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from predict.prices.open import SpeedOfLight
from predict.prices.pace import DISTURBANCE_WIDTH, pace_spread, paces_beside
from predict.prices.price_list import PriceList
from regressors.dataset.pace_facts import RULE
from sampling.hardware.cluster import load_cluster

CLUSTER = load_cluster(hardware="cpu", nodes=1, gpus_per_node=2, profile="", cores=2)
OLDER = {"reference_us": {"compute": 500.0}, "disturbance": {"compute": 1.2}, "half_width": 0.1}
"""Facts of models that were fitted before rows had a response."""
FACTS = {
    **OLDER,
    "response": {"compute": {"within": 0.5, "reach": 1.0, "deviation": 0.1}},
    "mix": {"compute": 0.75, "memory": 0.25, "wire": 0.0},
    "unexplained": {"at_reference": 0.02, "by_log_pace": 0.1},
}


def prices(of_pace: Mapping[str, Any], *, transfer_error: float = 0.0) -> PriceList:
    samples = {"pace": {"2": of_pace}, "pace_rule": RULE}
    return PriceList(
        [SpeedOfLight()], CLUSTER, profile_error=0.0, transfer_error=transfer_error, provenance={"samples": samples}
    )


def test_profiles_without_readings_add_no_width() -> None:
    assert pace_spread({}, {}) == 0.0


def test_a_step_at_the_reference_pace_may_be_as_far_off_as_a_later_moment_and_what_readings_leave() -> None:
    disturbed = DISTURBANCE_WIDTH * 0.75 * 0.2
    assert pace_spread(FACTS, {}) == pytest.approx(math.hypot(0.1, 1.645 * 0.02, disturbed))
    assert pace_spread(OLDER, {}) == pytest.approx(0.1)


def test_a_step_at_a_pace_that_was_read_has_what_grows_with_the_pace_in_place_of_the_moments_spread() -> None:
    pace = math.sqrt(0.5)  # of calls, which follow the reference by half
    slowing = 0.75 / pace + 0.25
    left = 1.645 * math.hypot(0.02, 0.1 * math.log(slowing))
    followed = 1.645 * 0.75 / pace / slowing * 0.1 * math.log(2)
    disturbed = DISTURBANCE_WIDTH * 0.75 * 0.2
    assert pace_spread(FACTS, {"compute": 0.5}) == pytest.approx(math.hypot(left, followed, disturbed))
    assert pace_spread(OLDER, {"compute": 0.5}) == 0.0


def test_a_pace_beyond_those_that_rows_saw_widens_by_what_following_it_in_full_or_in_part_makes() -> None:
    sure = {**FACTS, "response": {"compute": {"within": 0.5, "reach": 0.1}}, "unexplained": {}, "disturbance": {}}
    inside, beyond = (pace_spread(sure, {"compute": math.exp(-change)}) for change in (0.1, 0.3))
    assert inside == pytest.approx(0.0, abs=1e-9)
    assert beyond == pytest.approx(1.645 * 0.5 * 0.2, rel=0.25)


def test_a_reading_counts_as_far_as_rows_follow_it() -> None:
    assert paces_beside(prices(FACTS), CLUSTER, {"compute": 1000.0}) == {"compute": pytest.approx(math.sqrt(0.5))}
    assert paces_beside(prices(OLDER), CLUSTER, {"compute": 1000.0, "memory": 9.0}) == {"compute": pytest.approx(0.5)}


def test_readings_say_nothing_of_rows_of_another_device_or_of_other_busy_ranks() -> None:
    alone = load_cluster(hardware="cpu", nodes=1, gpus_per_node=1, profile="", cores=2)
    assert paces_beside(prices(FACTS, transfer_error=0.1), CLUSTER, {"compute": 1000.0}) == {}
    assert paces_beside(prices(FACTS), alone, {"compute": 1000.0}) == {}
