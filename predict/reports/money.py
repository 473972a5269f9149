"""Figures with their bounds, money, and what a whole training rests on, for a reader."""

from __future__ import annotations

from math import isinf

from predict.interval import Interval
from predict.ledger.training_cost import TIMES, TrainingCost
from sampling.number_text import DIGITS, significant

ASSUMED_GOODPUT = "assumed: Llama 3 405B kept above it, arXiv 2407.21783"
"""Source of the goodput that is taken where none is given."""
MOST_DECIMALS = 9
"""Decimals of an amount at most: a token costs millionths."""


def span_text(span: Interval) -> str:
    """`1,240 (1,110 to 1,400)`; the figure alone where its bounds are the same."""
    median, low, high = map(_number, (span.median, span.low, span.high))
    return median if median == low == high else f"{median} ({low} to {high})"


def money_text(cost: Interval, currency: str) -> str:
    """The cost with its currency."""
    return _with_currency(span_text(cost), currency)


def amount_text(amount: float, currency: str) -> str:
    """A single amount with its currency."""
    return _with_currency(_number(amount), currency)


def tokens_text(tokens: float) -> str:
    """300B, 2T: as --tokens takes them."""
    suffix, size = next((suffix, size) for suffix, size in reversed(list(TIMES.items())) if tokens >= size)
    return f"{tokens / size:.4g}{suffix}"


def goodput_text(cost: TrainingCost, source: str) -> str:
    """The share of the time that is kept, and where it is from."""
    return f"{cost.goodput:.0%} of the time goes into steps that are kept ({source})"


def _with_currency(figures: str, currency: str) -> str:
    """Figures with a symbol before them, or a code such as EUR after them."""
    return f"{figures} {currency}" if currency.isalpha() else f"{currency}{figures}"


def _number(value: float) -> str:
    """Three significant digits, in full: 1,240, 2.50, 0.000120."""
    if isinf(value):
        return "no bound"
    return significant(float(f"{value:.{DIGITS}g}"), most_decimals=MOST_DECIMALS)
