"""The edge between rates at which something holds and those at which it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

HALVINGS = 8
"""Halvings of a bracket, which leave 0.4 % of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bracket:
    """The highest rate that was found to hold, and the lowest that was not; equal where everything up to it holds."""

    holds: float
    fails: float


def bisected(holds: Callable[[float], bool], least: float, most: float) -> Bracket:
    """The edge between a rate that holds and one that does not; neither end is tried."""
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        least, most = (middle, most) if holds(middle) else (least, middle)
    return Bracket(holds=least, fails=most)
