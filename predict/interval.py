"""A time, rate or ratio with its 90 % bounds, and the rules by which bounds add up.

Widths are half-widths of the logarithm at 90 %. Two rules add them: errors with a common cause move together, so that their widths add
linearly (`together`, `shared_causes`); errors with causes of their own add in quadrature (`independent`, `independent_causes`).
Call sites name what they add, and the functions at the end state which rule that follows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Self

from regressors.bank.times import Source, Times


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A median with its 90 % bounds, in the unit of the name that holds it. A time is in µs: `median_us`, `low_us` and
    `high_us` read it."""

    median: float
    low: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> Interval:
        """A value without uncertainty."""
        return cls(median=value, low=value, high=value)

    @classmethod
    def from_log(cls, median: float, half_width: float) -> Self:
        """The interval of a half-width in log, at 90 %, about a median."""
        factor = math.exp(half_width)
        return cls(median=median, low=median / factor, high=median * factor)

    @classmethod
    def of(cls, time: Times) -> Interval:
        """The interval of a call's time, in µs."""
        return cls(median=time.median_us, low=time.low_us, high=time.high_us)

    def as_times(self, source: Source) -> Times:
        """The interval in µs as a call's time."""
        return Times(median_us=self.median, low_us=self.low, high_us=self.high, source=source)

    def in_place_of(self, time: Times) -> Times:
        """A call's time with this interval, in µs, as its own."""
        return replace(time, median_us=self.median, low_us=self.low, high_us=self.high)

    @property
    def median_us(self) -> float:
        return self.median

    @property
    def low_us(self) -> float:
        return self.low

    @property
    def high_us(self) -> float:
        return self.high

    @property
    def half_width_log(self) -> float:
        """Half of the interval's width in log."""
        return math.log(self.high / self.low) / 2

    def covers(self, value: float) -> bool:
        """Whether a value lies within the bounds."""
        return self.low <= value <= self.high

    def scaled(self, factor: float) -> Interval:
        """The median and the bounds times a factor."""
        return Interval(median=factor * self.median, low=factor * self.low, high=factor * self.high)

    def dividing(self, amount: float) -> Interval:
        """`amount` over the interval: the time of an amount at a rate, the cost of one of a number. Infinite at a rate that may be 0."""
        high = amount / self.low if self.low else math.inf
        return Interval(median=amount / self.median, low=amount / self.high, high=high)

    def ratio_to(self, median: float) -> Interval:
        """The median and the bounds over a value that is known exactly."""
        return Interval(median=self.median / median, low=self.low / median, high=self.high / median)

    def widened(self, half_width: float) -> Interval:
        """The interval with the half-width in log of a further, independent cause, on either side."""
        if not half_width:
            return self
        return Interval(
            median=self.median,
            low=self.median * math.exp(-independent_causes(half_width, math.log(self.median / self.low))),
            high=self.median * math.exp(independent_causes(half_width, math.log(self.high / self.median))),
        )

    def stretched(self, half_width: float) -> Interval:
        """The interval with the half-width in log of a further cause that moves it the way its own errors do, on either side."""
        factor = math.exp(half_width)
        return Interval(median=self.median, low=self.low / factor, high=self.high * factor)

    def narrowed(self, share: float) -> Interval:
        """The interval with its width in log multiplied by `share` on either side."""
        if share == 1:
            return self
        return Interval(
            median=self.median,
            low=self.median * (self.low / self.median) ** share,
            high=self.median * (self.high / self.median) ** share,
        )


def independent_causes(*half_widths: float) -> float:
    """The half-width, or the standard deviation, that causes leave which have nothing in common."""
    return math.hypot(*half_widths)


def shared_causes(*half_widths: float) -> float:
    """The half-width that causes leave which move a time the same way."""
    return sum(half_widths)


def without_cause(half_width: float, cause: float) -> float:
    """The half-width that is left once an independent cause is known, or by which two differ that share all else."""
    return math.sqrt(abs(half_width**2 - cause**2))


def together(times: Iterable[Interval]) -> Interval:
    """The sum of times whose errors move together."""
    listed = list(times)
    return Interval(
        median=sum(time.median for time in listed),
        low=sum(time.low for time in listed),
        high=sum(time.high for time in listed),
    )


def independent(times: Iterable[Interval]) -> Interval:
    """The sum of times whose errors have nothing in common."""
    listed = list(times)
    return from_shifts(
        sum(time.median for time in listed),
        below=[time.median - time.low for time in listed],
        above=[time.high - time.median for time in listed],
    )


def from_shifts(median: float, *, below: Iterable[float], above: Iterable[float], least: float = 0.0) -> Interval:
    """A time that independent causes shift, each by so much at its lower and at its upper bound; no lower than `least`."""
    return Interval(median=median, low=max(least, median - math.hypot(*below)), high=median + math.hypot(*above))


def longer(first: Interval, second: Interval) -> Interval:
    """The time until both of two things that run side by side are done."""
    return Interval(
        median=max(first.median, second.median), low=max(first.low, second.low), high=max(first.high, second.high)
    )


def equally_likely(intervals: Sequence[Interval], unknown: float = 0.0) -> Interval:
    """One interval of equally likely runs: the geometric mean of their medians, within the widest of their bounds.

    `unknown` is a half-width in log at 90 % for what is open too, and the runs do not differ in; it widens each of them.
    """
    wide = [one.widened(unknown) for one in intervals]
    return Interval(
        median=math.exp(fmean(math.log(one.median) for one in wide)),
        low=min(one.low for one in wide),
        high=max(one.high for one in wide),
    )


width_of_call = independent_causes
"""Causes of the width of one call's time: the model of its samples, clocks, fusion, scaling, software."""
width_of_unmeasured_kernel = shared_causes
"""The scatter of a kernel's shapes, and an architecture without samples. One such shift moves all kinds of kernels alike, while a step adds
kinds as if they had nothing in common: counted in full in each, it is not averaged away."""
width_of_step = independent_causes
"""Causes of the width of a step: its calls, how they add up, the framework, rows of another CPU."""
width_of_server = independent_causes
"""Causes of the width of a server's step: its fitted weights, an architecture that they were not fitted to, terms that no measurement
covers, rows of another CPU."""
width_of_ratio = independent_causes
"""Causes of the width of a ratio of two times, once those that both share are left out."""
sum_of_calls = together
"""Calls one after the other that one profile prices."""
sum_of_training_phases = together
"""Phases on the trainer's GPUs, which run the same kernels in the same framework."""
sum_of_phases = independent
"""Phases of an RL step on other hardware or of other software, and parts of one phase that nothing links."""
