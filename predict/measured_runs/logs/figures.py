"""Figures in a line of a log: after a name, with a sign between."""

from __future__ import annotations

import math
import re

NUMBER = r"([+-]?[\d,]*\.?\d+(?:[eE][+-]?\d+)?)"


def figure(line: str, name: str) -> float | None:
    """The number after `name` (a regular expression) and `:` or `=`; None where there is none, or it is not above 0."""
    found = re.search(rf"{name}\s*[:=]\s*['\"]?{NUMBER}", line)
    if not found:
        return None
    value = float(found[1].replace(",", ""))
    return value if 0 < value < math.inf else None


def whole(line: str, name: str) -> int | None:
    """The whole number after `name`; None where there is none, or it is not above 0."""
    value = figure(line, name)
    return None if value is None else round(value)


def times(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit
