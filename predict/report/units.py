"""Numbers for people."""

from __future__ import annotations

from collections.abc import Callable

Show = Callable[[float], str]
"""Writes a number as text."""


UNITS = ((3.6e9, "h"), (1e6, "s"), (1e3, "ms"), (1.0, "µs"))
"""µs in each unit that a time is told in."""
LONG = 999.5
"""Figure from which on three digits would need an exponent."""
BAR_WIDTH = 24
"""Characters of a bar that stands for all."""


def duration(time_us: float) -> str:
    """Microseconds in the unit that reads best: 153 µs, 12.4 ms, 1.73 s, 2.1 h; never with an exponent above 0."""
    size, unit = _unit(time_us)
    return f"{_figure(time_us / size)} {unit}"


def durations(low_us: float, high_us: float) -> str:
    """An interval in one unit, that of its upper bound: `0.98 to 1.21 s`."""
    size, unit = _unit(high_us)
    return f"{_figure(low_us / size)} to {_figure(high_us / size)} {unit}"


def _unit(time_us: float) -> tuple[float, str]:
    return next((each for each in UNITS if abs(time_us) >= each[0]), UNITS[-1])


def _figure(value: float) -> str:
    return f"{value:.3g}" if abs(value) < LONG else f"{value:,.0f}"


def percent(share: float) -> str:
    """Percent to a tenth; a value that rounds to 0 has no sign."""
    return f"{round(share, 3) + 0.0:.1%}"


def bar(share: float) -> str:
    """A bar as long as the share, of BAR_WIDTH characters for all."""
    return "█" * round(BAR_WIDTH * max(0.0, share))


def plain(value: float) -> str:
    """A number without a unit, as short as it is still exact to four digits."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e8 else f"{value:.4g}"
