"""The host's launching of a layer's kernels, read off rows: the launch floor, below which a layer's time does not fall."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sampling.call import Phase
from sampling.cells.layer import DenseLayer

if TYPE_CHECKING:  # predicting needs no rows
    from sampling.store.sample import Sample

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
