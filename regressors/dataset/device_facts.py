"""Facts that rows give of the device and its host as a whole, beside the time of each call: clocks, power, launching."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sampling.arithmetic.operator import Operator
from sampling.call import Call, Phase, State
from sampling.cells.layer import DenseLayer

if TYPE_CHECKING:  # predicting needs no rows
    from sampling.store.sample import Sample


# The host's launching of a layer's kernels, read off rows: the launch floor, below which a layer's time does not fall.

LAUNCH_NORM = 4.0
"""Exponent of the norm in which kernels and their launches add, as memory and compute of a kernel do."""
MOST_TOO_LONG = 0.02
"""Largest share by which a layer's time may exceed its launch floor and still be taken for it: medians of one shape repeat no better."""
LAUNCH_BOUND = 1 - (1 - (1 + MOST_TOO_LONG) ** -LAUNCH_NORM) ** (1 / LAUNCH_NORM)
"""Share of a layer's time on an idle device that launching adds, from which on the time is the launch floor: at 0.47 the kernels run
for just over half of the time, and add MOST_TOO_LONG to the floor in the norm."""
FLOOR_PHASES: Sequence[Phase] = ("forward", "backward")


def launch_floors(rows: Iterable[Sample]) -> Mapping[str, Mapping[Phase, Sequence[float]]]:
    """`eager` or `compiled` → phase → the times in µs of dense layers so small that the device waits for the host."""
    floors: dict[str, dict[Phase, list[float]]] = {}
    for row in rows:
        if not isinstance(row.call, DenseLayer) or row.call.group_size > 1 or row.phase not in FLOOR_PHASES:
            continue
        if row.exposed_us is None or row.launch_us is None or row.launch_us < LAUNCH_BOUND * row.exposed_us:
            continue
        kind = "compiled" if row.call.compiled else "eager"
        floors.setdefault(kind, {}).setdefault(row.phase, []).append(row.exposed_us)
    return floors


# The facts.

LONG_US = 100.0
"""Time from which a product draws the power of a long run: shorter ones wait for their launch in between."""
LEAST_PAIRS = 3
"""Products timed in both states from which the ratio of the two is taken."""
LEAST_WIDTH = MOST_TOO_LONG
"""Least half-width, in log, of anything read off a few rows."""
Z_90 = 1.645
"""Standard deviations of a normal in half of its 90 % interval."""


def device_facts(samples: Iterable[Sample]) -> dict[str, Any]:
    """JSON of what the good rows of a GPU say; each entry is missing where too few rows have it.

    - `sustained`: dtype → time of products in a long run over that of a short one
    - `launch_floor_us`: `eager` or `compiled` → phase → µs in which the host launches a dense layer's kernels
    - `clocks`: state → clock_mhz and power_w of products
    """
    rows = [sample for sample in samples if not sample.quarantine and not sample.origin and not sample.threads]
    products = [row for row in rows if isinstance(row.call, Operator) and row.call.POWER_LIMITED]
    facts = {
        "sustained": _sustained_ratios(products),
        "launch_floor_us": {
            kind: {phase: _spread(found) for phase, found in phases.items()}
            for kind, phases in launch_floors(rows).items()
        },
        "clocks": _clocks(products),
    }
    return {name: found for name, found in facts.items() if found}


def _sustained_ratios(products: Sequence[Sample]) -> dict[str, Any]:
    states: dict[State, dict[tuple[Call, Phase, int], float]] = {"burst": {}, "sustained": {}}
    for row in products:
        states[row.state][row.call, row.phase, row.busy_ranks] = row.time_us
    ratios: dict[str, list[float]] = {}
    for timed, burst_us in states["burst"].items():
        sustained_us = states["sustained"].get(timed)
        if sustained_us is not None and burst_us >= LONG_US:
            ratios.setdefault(str(timed[0].fields()["dtype"]), []).append(sustained_us / burst_us)
    return {dtype: _spread(found) for dtype, found in sorted(ratios.items()) if len(found) >= LEAST_PAIRS}


def _clocks(products: Sequence[Sample]) -> dict[str, Any]:
    readings: Mapping[str, Callable[[Sample], float | None]] = {
        "clock_mhz": lambda row: row.clock_mhz,
        "power_w": lambda row: row.power_w,
    }
    found: dict[str, dict[str, float]] = {}
    for state in ("burst", "sustained"):
        for name, reading in readings.items():
            values = [value for row in products if row.state == state and (value := reading(row)) is not None]
            if values:
                found.setdefault(state, {})[name] = statistics.median(values)
    return found


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Median, the half-width of the logarithms at 90 %, and how many values there are."""
    logs = [math.log(value) for value in values]
    width = Z_90 * statistics.stdev(logs) if len(logs) > 1 else 0.0
    return {"value": statistics.median(values), "half_width": max(LEAST_WIDTH, width), "rows": len(values)}
