"""Numbers as people read them: times, sizes, shares, each with the digits that it is worth and never with an exponent.

A negative number has a minus sign, not a hyphen; what rounds to nothing has no sign; thousands have commas.
"""

import math
from collections.abc import Callable
from decimal import Decimal

from sampling.units import GIB, HOUR_US, KIB, MIB, MINUTE_US, SECOND_US

Show = Callable[[float], str]
"""Writes a number as text."""

UNITS = (
    (HOUR_US, HOUR_US, "h"),
    (10 * MINUTE_US, MINUTE_US, "min"),
    (SECOND_US, SECOND_US, "s"),
    (1e3, 1e3, "ms"),
    (1.0, 1.0, "µs"),
)
"""The shortest time in µs that is written in a unit, µs of the unit, and its sign: steps are compared in seconds up to ten minutes."""
DIGITS = 3
"""Significant digits of a time."""
MOST_DECIMALS = 3
"""Decimals that a time has at most: nothing below a nanosecond is shown."""
ROUNDED_UP = 1 - 0.5 * 10**-DIGITS
"""Share of a unit from which on a time is written in it: 999.7 µs are 1.00 ms."""
BAR_WIDTH = 24
"""Characters of a bar that stands for all."""


def duration(time_us: float, *, digits: int = DIGITS) -> str:
    """Microseconds in the unit that reads best: 153 µs, 12.4 ms, 1.70 s, 14.0 s, 12.5 min, 2.10 h."""
    size, unit = _unit(time_us)
    return f"{significant(time_us / size, digits)} {unit}"


def durations(low_us: float, high_us: float) -> str:
    """An interval in one unit and with one number of decimals, those of its upper bound: `0.98 to 1.21 s`."""
    size, unit = _unit(high_us)
    low, high = low_us / size, high_us / size
    decimals = _decimals(high, DIGITS)
    if low and abs(low) < 0.5 * 10**-decimals:  # too far below for these decimals
        decimals = _decimals(low, 1)
    return f"{_fixed(low, decimals)} to {significant(high, DIGITS)} {unit}"


def _unit(time_us: float) -> tuple[float, str]:
    found = next((each for each in UNITS if abs(time_us) >= ROUNDED_UP * each[0]), UNITS[-1])
    return found[1], found[2]


def significant(value: float, digits: int = DIGITS, *, most_decimals: int = MOST_DECIMALS) -> str:
    """A number with so many significant digits, zeros at its end kept; of a larger one all digits before the point."""
    return _fixed(value, _decimals(value, digits, most_decimals))


def _decimals(value: float, digits: int, most: int = MOST_DECIMALS) -> int:
    """Decimals that give so many significant digits, `most` at most; 0 for nothing."""
    if not value or not math.isfinite(value):
        return 0
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # after rounding: 9.999 is written as 10.0
    return min(most, max(0, digits - 1 - exponent))


def _fixed(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    return "0" if _is_nothing(text) and math.isfinite(value) else with_minus(text)


def _is_nothing(text: str) -> bool:
    """Whether a number rounds to 0 in its text."""
    return not any(digit in text for digit in "123456789")


def percent(share: float) -> str:
    """Percent to a tenth: 88.4 %; a value that rounds to 0 has no sign."""
    return _percent(round(share, 3) + 0.0, ",.1f")


def whole_percent(share: float) -> str:
    """Percent without decimals, for chances, widths and shares whose tenths mean nothing: 87 %."""
    return _percent(round(share, 2) + 0.0, ",.0f")


def signed_percent(share: float, *, decimals: int = 1) -> str:
    """A difference as a share of what it is a difference from: +3.1 %, −12.0 %; 0.0 % where it rounds to nothing."""
    rounded = round(share, decimals + 2) + 0.0
    return _percent(rounded, f"+,.{decimals}f") if rounded else _percent(0.0, f".{decimals}f")


def _percent(share: float, form: str) -> str:
    """The one spelling of percent, that of the SI: with a space before the sign."""
    return with_minus(f"{100 * share:{form}} %")


def signed(value: float, show: Show) -> str:
    """A difference as `show` writes it, with its sign: +153 µs, −1.20 ms; no sign where it rounds to nothing."""
    text = show(value)
    return f"+{text}" if value > 0 and not _is_nothing(text) else text


def with_minus(text: str) -> str:
    """A number's text with the minus sign of print in place of a hyphen at its start."""
    return f"−{text[1:]}" if text.startswith("-") else text


def size(size_bytes: float) -> str:
    """GiB with two decimals; MiB below a tenth of a GiB, KiB below a tenth of a MiB, bytes below a tenth of a KiB."""
    if abs(size_bytes) >= GIB / 10:
        return f"{gib(size_bytes)} GiB"
    if not size_bytes or abs(size_bytes) >= MIB / 10:
        return f"{_fixed(size_bytes / MIB, 1)} MiB"
    return f"{_fixed(size_bytes / KIB, 1)} KiB" if abs(size_bytes) >= KIB / 10 else f"{count(size_bytes)} B"


def gib(size_bytes: float) -> str:
    """GiB with two decimals, for columns whose heading names the unit."""
    return with_minus(f"{round(size_bytes / GIB, 2) + 0.0:,.2f}")


def count(value: float) -> str:
    """A whole number, rounded where it is none: 8,192."""
    return _fixed(value, 0)


def multiple(ratio: float) -> str:
    """The number of times that one figure holds another: 1.90 ×, 12.3 ×."""
    return f"{significant(ratio)} ×"


STEPS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def quantity(value: float) -> str:
    """A count of four digits with a prefix: 8.030G."""
    for least, prefix in STEPS:
        if abs(value) >= least * (1 - 0.5e-4):
            return f"{significant(value / least, 4)}{prefix}"
    return significant(value, 4)


def seconds(time_s: float) -> str:
    """Seconds as `duration` writes them."""
    return duration(time_s * SECOND_US)


def plain(value: float) -> str:
    """A number without a unit, as short as it is still exact to four digits."""
    text = f"{value:,.0f}" if abs(value) >= 999.95 else f"{value + 0.0:.4g}"
    return with_minus(f"{Decimal(text):f}" if "e" in text else text)


def as_given(value: float) -> str:
    """A number of the user's in full, for refusals: what is wrong with it may be its last digit, and they look for what they wrote."""
    return repr(value).removesuffix(".0")


def bar(share: float) -> str:
    """A bar as long as the share, of BAR_WIDTH characters for all."""
    return "█" * round(BAR_WIDTH * max(0.0, share))
