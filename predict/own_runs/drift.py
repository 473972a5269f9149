"""Drift: when measured steps changed against their predictions.

The rule. Each configuration has a level of its own, which no prediction needs to meet: only its own runs are held against one another.
Of every stretch of runs, up to the last one or not, the shift is the level within it less that of the others (least squares, all
configurations alike); the stretch whose shift is the largest in its own standard errors is the candidate (circular binary
segmentation: Olshen et al., Biostatistics 5(4), 2004). It is a change where, of PERMUTATIONS orders in which the runs of each
configuration are shuffled among themselves, fewer than ALARM have as large a one: so a false alarm is as rare as ALARM wherever runs do
not depend on the ones before, whatever their noise is. Then the parts on its sides and within it are asked again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
ALARM = 0.01
"""Share of histories without a change in which one is seen."""
PERMUTATIONS = 1999
LEAST_WEIGHT = 1.5
"""Runs n in and m out of a stretch, of one configuration, tell its shift as n·m / (n + m) do: 3 beside 3 are enough, or 2 beside 6."""
SMALLEST = 0.01
"""Shift in log time below which a change is not told."""
AT_ONCE = 5_000_000
"""Stretches of shuffled orders that are held at once, which bounds the memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A change between two neighbouring runs, by their places in order."""

    start: int
    """First run of the stretch before it."""
    place: int
    """First run after it."""
    stop: int
    """Place behind the last run of the stretch after it."""
    shift: float
    """Measured over predicted after it, less before: in log time, so that 0.06 is about 6 % slower."""
    chance: float
    """Share of orders without a change that have as large a shift."""


def changes(logs: Sequence[float], configurations: Sequence[object]) -> list[Change]:
    """The changes in logarithms of measured over predicted steps, in order; `configurations` tells which runs are of one."""
    names = {name: number for number, name in enumerate(dict.fromkeys(configurations))}
    groups = np.array([names[name] for name in configurations], dtype=np.intp)
    values = np.array(logs, dtype=np.float64)
    chances = dict(_cuts(values, groups, 0, len(values)))
    bounds = [0, *sorted(chances), len(values)]
    found = []
    for start, place, stop in zip(bounds, bounds[1:], bounds[2:], strict=False):
        shift = _shift(values, groups, (start, place, stop))
        if abs(shift) >= SMALLEST:
            found.append(Change(start=start, place=place, stop=stop, shift=shift, chance=chances[place]))
    return found


def _cuts(logs: Floats, groups: Places, start: int, stop: int) -> Iterator[tuple[int, float]]:
    """The places at which a stretch begins or ends, each with its chance."""
    found = _stretch(logs[start:stop], groups[start:stop])
    if found is None:
        return
    first, last, chance = found
    bounds = [start, *(start + place for place in (first, last) if 0 < place < stop - start), stop]
    yield from ((place, chance) for place in bounds[1:-1])
    for part in pairwise(bounds):
        yield from _cuts(logs, groups, *part)


def _stretch(logs: Floats, groups: Places) -> tuple[int, int, float] | None:
    """The stretch that stands out the most, and the chance of one as great; None where none does."""
    if not len(logs):
        return None
    members = np.eye(groups.max() + 1)[groups]
    counts = members.sum(axis=0)
    before = np.concatenate([np.zeros((1, len(counts))), np.cumsum(members, axis=0)])
    first, last = np.triu_indices(len(logs) + 1, 1)
    inside = before[last] - before[first]
    weights = (inside * (1 - inside / np.maximum(counts, 1))).sum(axis=1)
    enough = weights >= LEAST_WEIGHT - 1e-9
    first, last, weights = first[enough], last[enough], weights[enough]
    centred = logs - (members.T @ logs / np.maximum(counts, 1))[groups]
    if not len(first) or not centred.any():
        return None

    def sizes(orders: Floats) -> Floats:
        sums = np.concatenate([np.zeros((len(orders), 1)), np.cumsum(orders, axis=1)], axis=1)
        size: Floats = np.abs(sums[:, last] - sums[:, first]) / np.sqrt(weights)
        return size

    (own,) = sizes(centred[np.newaxis])
    best = int(np.argmax(own))
    blocks = _shuffled(centred, groups, max(1, AT_ONCE // len(first)))
    as_great = sum(int((sizes(block).max(axis=1) >= own[best] * (1 - 1e-9)).sum()) for block in blocks)
    chance = (1 + as_great) / (1 + PERMUTATIONS)
    return (int(first[best]), int(last[best]), chance) if chance <= ALARM else None


def _shuffled(values: Floats, groups: Places, at_once: int) -> Iterator[Floats]:
    """PERMUTATIONS orders of the values within their configurations, in blocks; the same ones each time."""
    random = np.random.default_rng(0)
    in_order = np.argsort(groups, kind="stable")
    for done in range(0, PERMUTATIONS, at_once):
        keys = random.random((min(at_once, PERMUTATIONS - done), len(values))) + groups
        block = np.empty_like(keys)
        block[:, in_order] = values[np.argsort(keys, axis=1)]
        yield block


def _shift(logs: Floats, groups: Places, bounds: tuple[int, int, int]) -> float:
    """The level after the middle bound less that before it, over the configurations on both sides; 0 where there are none."""
    start, place, stop = bounds
    total = weight = 0.0
    for group in np.unique(groups[start:stop]):
        before, after = (logs[side][groups[side] == group] for side in (slice(start, place), slice(place, stop)))
        if len(before) and len(after):
            own = len(before) * len(after) / (len(before) + len(after))
            total += own * float(after.mean() - before.mean())
            weight += own
    return total / weight if weight else 0.0
