"""The median of ratios that count by the time that they are of."""

from __future__ import annotations

from collections.abc import Sequence


def weighted_median(ratios: Sequence[tuple[float, float]]) -> float:
    """The median of (ratio, weight); 1 of none."""
    half = sum(weight for _, weight in ratios) / 2
    for ratio, weight in sorted(ratios):
        half -= weight
        if half <= 0:
            return ratio
    return 1.0
