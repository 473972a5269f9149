"""Numbers for people."""

from __future__ import annotations

from collections.abc import Callable

Show = Callable[[float], str]
"""Writes a number as text."""


def duration(time_us: float) -> str:
    """Microseconds in the unit that reads best: 153 µs, 12.4 ms, 1.73 s, 2.1 h; never with an exponent above 0."""
    size = abs(time_us)
    if size >= 3.6e9:
        hours = time_us / 3.6e9
        return f"{hours:.3g} h" if abs(hours) < 999.5 else f"{hours:,.0f} h"
    if 999.5 <= size < 1e3:
        return f"{time_us:,.0f} µs"
    for limit, unit in ((1e6, "s"), (1e3, "ms")):
        if size >= limit:
            return f"{time_us / limit:.3g} {unit}" if size < 1000 * limit else f"{time_us / limit:,.0f} {unit}"
    return f"{time_us:.3g} µs"


def plain(value: float) -> str:
    """A number without a unit, as short as it is still exact to four digits."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e8 else f"{value:.4g}"


def counted(number: int, what: str) -> str:
    """`1 run`, `2 runs`, `3 microbatches`."""
    plural = "" if number == 1 else "es" if what.endswith("ch") else "s"
    return f"{number} {what}{plural}"
