"""Numbers for people."""

from __future__ import annotations

import pytest

from predict.report.units import duration


@pytest.mark.parametrize(
    ("time_us", "text"),
    [(999.7, "1,000 µs"), (153.2, "153 µs"), (1500.0, "1.5 ms"), (7.2e9, "2 h"), (3.6e9 * 4.56e8, "456,000,000 h")],
)
def test_a_duration_has_no_positive_exponent(time_us: float, text: str) -> None:
    assert duration(time_us) == text
