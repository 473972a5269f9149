"""Figures with their bounds, and money, for a reader."""

from __future__ import annotations

from math import isinf

from predict.ledger.training_cost import Span
from sampling.number_text import DIGITS, significant

MOST_DECIMALS = 9
"""Decimals of an amount at most: a token costs millionths."""


def span_text(span: Span) -> str:
    """`1,240 (1,110 to 1,400)`; the figure alone where its bounds are the same."""
    median, low, high = map(_number, (span.median, span.low, span.high))
    return median if median == low == high else f"{median} ({low} to {high})"


def money_text(cost: Span, currency: str) -> str:
    """The cost with its currency."""
    return _with_currency(span_text(cost), currency)


def amount_text(amount: float, currency: str) -> str:
    """A single amount with its currency."""
    return _with_currency(_number(amount), currency)


def _with_currency(figures: str, currency: str) -> str:
    """Figures with a symbol before them, or a code such as EUR after them."""
    return f"{figures} {currency}" if currency.isalpha() else f"{currency}{figures}"


def _number(value: float) -> str:
    """Three significant digits, in full: 1,240, 2.50, 0.000120."""
    if isinf(value):
        return "no bound"
    return significant(float(f"{value:.{DIGITS}g}"), most_decimals=MOST_DECIMALS)
