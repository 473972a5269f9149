"""Numbers for people."""

from __future__ import annotations

import pytest

from predict.report.units import duration, durations


@pytest.mark.parametrize(
    ("time_us", "text"),
    [(999.7, "1,000 µs"), (153.2, "153 µs"), (1500.0, "1.5 ms"), (7.2e9, "2 h"), (3.6e9 * 4.56e8, "456,000,000 h")],
)
def test_a_duration_has_no_positive_exponent(time_us: float, text: str) -> None:
    assert duration(time_us) == text


@pytest.mark.parametrize(
    ("low_us", "high_us", "text"),
    [(9.8e5, 1.21e6, "0.98 to 1.21 s"), (800.0, 1500.0, "0.8 to 1.5 ms"), (2.0e4, 3.0e4, "20 to 30 ms")],
)
def test_an_interval_is_told_in_one_unit(low_us: float, high_us: float, text: str) -> None:
    assert durations(low_us, high_us) == text
