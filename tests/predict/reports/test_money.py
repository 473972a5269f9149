"""Money for a reader."""

from math import inf

import pytest

from predict.interval import Interval
from predict.reports.money import amount_text, money_text


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        (0.123, "$", "$0.123"),
        (0.0999, "$", "$0.0999"),
        (1.2e-5, "EUR", "0.0000120 EUR"),
        (-2.5, "EUR", "−2.50 EUR"),
        (1237.0, "$", "$1,240"),
        (0.0, "", "0"),
    ],
)
def test_an_amount_has_three_digits_and_no_exponent(amount: float, currency: str, text: str) -> None:
    assert amount_text(amount, currency) == text


def test_bounds_stand_beside_the_median() -> None:
    assert money_text(Interval(median=2.0, low=1.0, high=inf), "$") == "$2.00 (1.00 to no bound)"
    assert money_text(Interval(median=2.0, low=2.0, high=2.0), "EUR") == "2.00 EUR"
