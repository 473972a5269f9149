"""A predicted time with its interval and its source."""

from collections.abc import Mapping
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


def shares_of(by_source_us: Mapping[str, float]) -> dict[str, float]:
    """Source → its share of the time of all, from the time of each."""
    total_us = sum(by_source_us.values())
    return {source: time_us / total_us for source, time_us in by_source_us.items()}
