"""Numbers for people."""

from __future__ import annotations

import pytest

from sampling.number_text import duration, durations, gib, percent, plain, signed, signed_percent, size
from sampling.units import GIB


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (999.7, "1.00 ms"),
        (153.2, "153 µs"),
        (1500.0, "1.50 ms"),
        (14.0e6, "14.0 s"),
        (9.999e3, "10.0 ms"),
        (65.04e3, "65.0 ms"),
        (2.5e9, "2,500 s"),
        (1.49e10, "4.14 h"),
        (7.2e9, "2.00 h"),
        (3.6e9 * 4.56e8, "456,000,000 h"),
        (-195.4e3, "−195 ms"),
        (0.0231, "0.023 µs"),
        (-1e-9, "0 µs"),
        (0.0, "0 µs"),
    ],
)
def test_a_duration_has_three_digits_and_no_exponent(time_us: float, text: str) -> None:
    assert duration(time_us) == text


@pytest.mark.parametrize(
    ("low_us", "high_us", "text"),
    [
        (9.8e5, 1.21e6, "0.98 to 1.21 s"),
        (800.0, 1500.0, "0.80 to 1.50 ms"),
        (2.0e4, 3.0e4, "20.0 to 30.0 ms"),
        (356e3, 1.46e6, "0.36 to 1.46 s"),
        (200.0, 3.0e5, "0.2 to 300 ms"),
        (0.0, 7.0, "0 to 7.00 µs"),
    ],
)
def test_an_interval_is_reported_in_one_unit_with_one_number_of_decimals(
    low_us: float, high_us: float, text: str
) -> None:
    assert durations(low_us, high_us) == text


def test_what_rounds_to_nothing_has_no_sign_and_what_is_below_it_a_minus() -> None:
    assert [signed_percent(share) for share in (0.031, -0.109, -0.0004)] == ["+3.1%", "−10.9%", "0.0%"]
    assert (percent(-0.0001), percent(-0.12)) == ("0.0%", "−12.0%")
    assert (size(-41.54 * GIB), size(0.05 * GIB), size(0.0)) == ("−41.54 GiB", "51.2 MiB", "0 MiB")
    assert [gib(each) for each in (-1e6, -GIB, 0.0)] == ["0.00", "−1.00", "0.00"]
    assert [signed(each, duration) for each in (1e-7, -1e-7, 153.2, -153.2)] == ["0 µs", "0 µs", "+153 µs", "−153 µs"]


def test_a_plain_number_has_no_exponent() -> None:
    texts = {1.5e9: "1,500,000,000", 1e-5: "0.00001", -0.25: "−0.25", 27.311: "27.31", -0.0: "0", 1.0: "1"}
    assert {value: plain(value) for value in texts} == texts
