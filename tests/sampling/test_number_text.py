"""Numbers for people."""

import re

import pytest

from sampling.files.places import SHIPPED
from sampling.number_text import (
    as_given,
    count,
    duration,
    durations,
    gib,
    multiple,
    percent,
    plain,
    quantity,
    seconds,
    signed,
    signed_percent,
    size,
    whole_percent,
)
from sampling.units import GIB


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (999.7, "1.00 ms"),
        (9.999e3, "10.0 ms"),
        (5.9e8, "590 s"),
        (2.5e9, "41.7 min"),
        (1.49e10, "4.14 h"),
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
    assert [signed_percent(share) for share in (0.031, -0.109, -0.0004)] == ["+3.1 %", "−10.9 %", "0.0 %"]
    assert (percent(-0.0001), percent(-0.12)) == ("0.0 %", "−12.0 %")
    assert (size(-41.54 * GIB), size(0.05 * GIB), size(0.0)) == ("−41.54 GiB", "51.2 MiB", "0 MiB")
    assert [gib(each) for each in (-1e6, -GIB, 0.0)] == ["0.00", "−1.00", "0.00"]
    assert [signed(each, duration) for each in (1e-7, -1e-7, 153.2, -153.2)] == ["0 µs", "0 µs", "+153 µs", "−153 µs"]


def test_a_plain_number_has_no_exponent() -> None:
    texts = {
        1.5e9: "1,500,000,000",
        1e-5: "0.00001",
        -0.25: "−0.25",
        27.311: "27.31",
        999.96: "1,000",
        -0.0: "0",
        1.0: "1",
    }
    assert {value: plain(value) for value in texts} == texts


def test_counts_shares_and_sizes_have_commas_and_one_form_each() -> None:
    assert (count(8192.4), count(-3.0), whole_percent(0.876), whole_percent(-0.001)) == ("8,192", "−3", "88 %", "0 %")
    assert (multiple(1.9), multiple(12.34), quantity(8.03e9), seconds(1.5)) == ("1.90 ×", "12.3 ×", "8.030G", "1.50 s")
    assert [quantity(each) for each in (999.97, 999_960.0, 999.96e9)] == ["1.000k", "1.000M", "1.000T"]
    assert [as_given(each) for each in (5.0, 1.00001, -1.0)] == ["5", "1.00001", "-1"]
    assert [size(each) for each in (3 * 2**20, 2048, 20)] == ["3.0 MiB", "2.0 KiB", "20 B"]


FLOAT_FORMAT = re.compile(r"[^ {]:[+,]*(?:\.(?:\d|\{\w+\}))?[fge%]\}|\{:[+,]*\.?\d*[fge%]\}")
NO_TEXT = {
    "sampling/number_text.py": "the home",
    "predict/schedules/compare.py": "a key to sort by",
    "predict/reports/money.py": "an amount cut to its digits before it is written",
    "predict/run/calibration_file.py": "digits of a file",
    "predict/run/lengths.py": "a config's value",
    "predict/validation/rl_rows.py": "a config's value",
    "predict/plan_search/compare.py": "a config's value",
    "predict/plan_search/training.py": "a column of a table for machines",
    "predict/serving/questions.py": "the name p99.9",
    "sampling/choosing/shapes.py": "the name of a distribution",
    "regressors/models/tuned_trees.py": "the name of a model",
}
"""Files that write floats for machines, and as what."""


def test_floats_in_texts_are_written_by_this_module_alone() -> None:
    paths = (path for package in ("predict", "sampling", "regressors") for path in SHIPPED.glob(f"{package}/**/*.py"))
    by_hand = {str(path.relative_to(SHIPPED)) for path in paths if FLOAT_FORMAT.search(path.read_text())}

    assert by_hand == set(NO_TEXT)
