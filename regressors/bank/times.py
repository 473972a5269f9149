"""A predicted time with its interval and its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sampling.call import State

Source = Literal["measured", "extrapolated", "transferred", "analytic"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """One call's time in microseconds: median, a 90 % interval, and the source.

    `measured` is inside the domain of the samples, `extrapolated` a fitted model outside it, `transferred` learnt on
    another device, and `analytic` the speed of light with stated efficiencies. `state`: whether the device's clocks are those of a
    short measurement or of a long run.
    """

    median_us: float
    low_us: float
    high_us: float
    source: Source
    state: State = "burst"
