"""The level of a noisy series."""

import random

import pytest

from sampling.store.pace_log import neighbours_deviation, smoothed


def noisy(levels: list[float], deviation: float = 0.1) -> list[float]:
    """Readings of these levels, with the same noise in every call."""
    draws = random.Random(0)
    return [level + draws.gauss(0, deviation) for level in levels]


def far(found: list[float], levels: list[float]) -> float:
    return sum(abs(one - level) for one, level in zip(found, levels, strict=True)) / len(levels)


def test_a_steady_level_is_known_many_times_better_than_by_a_reading() -> None:
    levels = [1.0] * 200
    assert far(smoothed(noisy(levels)), levels) < 0.2 * far(noisy(levels), levels)


def test_a_change_of_level_is_followed() -> None:
    levels = [0.0] * 100 + [0.5] * 100
    found = smoothed(noisy(levels))
    assert found[80] == pytest.approx(0.0, abs=0.1) and found[120] == pytest.approx(0.5, abs=0.1)
    assert far(found, levels) < 0.5 * far(noisy(levels), levels)


def test_a_level_without_noise_is_the_series_itself() -> None:
    levels = [0.0] * 50 + [1.0] * 50
    assert smoothed(levels) == levels


def test_single_readings_far_off_move_little() -> None:
    levels = [0.0] * 200
    readings = [value + (2.0 if place % 40 == 20 else 0.0) for place, value in enumerate(noisy(levels))]
    assert max(abs(level) for level in smoothed(readings)) < 0.2


def test_the_level_is_the_same_from_either_end() -> None:
    assert smoothed([0.1, 0.3]) == pytest.approx(smoothed([0.3, 0.1])[::-1])
    readings = noisy([0.0] * 100 + [0.5] * 100)
    assert smoothed(readings) == pytest.approx(smoothed(readings[::-1])[::-1], abs=0.1)


def test_one_reading_is_its_own_level() -> None:
    assert smoothed([0.4]) == [0.4]
    assert neighbours_deviation([0.4]) == 0.0


def test_the_noise_of_readings_is_their_distance_from_their_neighbours() -> None:
    readings = noisy([place / 1000 for place in range(2000)])
    assert neighbours_deviation(readings) == pytest.approx(0.1, rel=0.1)
