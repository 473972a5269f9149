"""Repeats of one run: how far their steps may lie apart."""

from __future__ import annotations

import math
from collections.abc import Collection

REPEATS = 0.06
"""Standard deviation in log time of repeats of one run: 2 to 6 % between published ones."""
AT_ODDS = 4.0
"""Standard deviations between a run and what others make of it, beyond which they contradict each other."""


def are_repeats(times_us: Collection[float]) -> bool:
    """Whether all of these steps may be of one run."""
    return math.log(max(times_us) / min(times_us)) <= AT_ODDS * REPEATS
