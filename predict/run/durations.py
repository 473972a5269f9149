"""Times as a user writes them: `412ms`, `3.2s`, `1.5min`."""

import math
import re

US = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6, "min": 60e6}
"""µs of each unit."""
DURATION = re.compile(r"\s*([\d.]+(?:e[+-]?\d+)?)\s*([a-zµ]+)\s*")


def duration_us(text: str) -> float | None:
    """The µs of a number above 0 with its unit; None for any other text."""
    found = DURATION.fullmatch(text)
    try:
        time_us = float(found[1]) * US[found[2]] if found else 0.0
    except (ValueError, KeyError):
        return None
    return time_us if 0 < time_us < math.inf else None
