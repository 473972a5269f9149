"""Rows to take again: of calls that do more work of every sort than another in less time, of calls whose rows differ from each other, and
of calls timed at a poor pace of the machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sampling.call import Call, Phase, Request

if TYPE_CHECKING:  # predicting needs no rows
    from sampling.store.sample import Sample

WORK_FIELDS = frozenset(
    {
        "batch",
        "seq_len",
        "tokens",
        "rows",
        "m",
        "n",
        "k",
        "matrices",
        "size_bytes",
        "parameters",
        "hidden",
        "ffn",
        "vocab",
    }
    | {"width", "count", "layers", "inter"}
)
"""Fields whose growth alone adds work."""
TOLERANCE = 0.1
"""Largest share by which more work may be faster: kernels are chosen by shape, and a tile that fits better saves up to as much."""


def excess_over_more_work(work: NDArray[np.float64], log_time: NDArray[np.float64]) -> NDArray[np.float64]:
    """Excess of each row in log time, by which it contradicts another: the time of less work over that of more, beyond TOLERANCE
    [rows]; 0 for a row that contradicts none. `work`: [rows, fields]."""
    excess = np.zeros(len(work))
    for place in range(len(work)):
        more = (work >= work[place]).all(axis=1) & (work > work[place]).any(axis=1)
        over = np.where(more, log_time[place] - log_time - TOLERANCE, 0.0)
        excess = np.maximum(excess, over)
        excess[place] = max(excess[place], float(over.max(initial=0.0)))
    return excess


def contradictory(rows: Iterable[Sample]) -> set[tuple[Call, Phase]]:
    """Calls and phases whose times, at the reference pace, contradict those of others that differ from them in work alone."""
    times: dict[tuple[Any, ...], dict[Call, list[float]]] = {}
    for row in rows:
        apart = tuple((name, value) for name, value in row.call.fields().items() if name not in WORK_FIELDS)
        alike = (type(row.call), row.phase, row.threads, row.busy_ranks, row.state, apart)
        times.setdefault(alike, {}).setdefault(row.call, []).append(math.log(row.time_us * row.pace))
    found: set[tuple[Call, Phase]] = set()
    for (_, phase, *_), by_call in times.items():
        calls = list(by_call)
        excess = excess_over_more_work(_work(calls), np.array([median(by_call[call]) for call in calls]))
        found |= {(call, phase) for call, over in zip(calls, excess.tolist(), strict=True) if over > 0}
    return found


def _work(calls: Sequence[Call]) -> NDArray[np.float64]:
    names = [name for name in calls[0].fields() if name in WORK_FIELDS]
    return np.array([[call.fields()[name] for name in names] for call in calls], dtype=np.float64)


MOST_ROWS = 6
"""Rows of a phase of a call from which on it is not timed again, however they differ."""
STEADY_ROWS = 3
"""Rows of a call that must be near the reference pace, and near their median; all, where it has fewer."""
FAR_PACE = 0.05
"""Distance in log from the reference pace up to which a row counts as near it."""
FAR_TIME = 0.1
"""Distance in log from the median of a call's rows, at the reference pace, up to which a row counts as near it. A burst of load that is
shorter than readings are apart makes a row too slow, and no pace shows it; three rows near their median outvote it."""


def worth_retaking(requests: Iterable[Request], kept: Iterable[Sample], ranks: int) -> list[Request]:
    """The requests, of those timed with `ranks` busy ranks, whose rows contradict others, were mostly taken at another pace than the
    reference pace, or differ from each other at that pace; the most doubtful first."""
    rows = [row for row in kept if row.busy_ranks == ranks and not row.quarantine and row.state == "burst"]
    at_odds = contradictory(rows)
    by_phase: dict[tuple[Call, Phase], list[Sample]] = {}
    for row in rows:
        by_phase.setdefault((row.call, row.phase), []).append(row)
    doubts: dict[Request, float] = {}
    for request in requests:
        found = {phase: by_phase.get((request.call, phase), []) for phase in request.phases}
        phases = tuple(
            phase
            for phase, of in found.items()
            if 0 < len(of) < MOST_ROWS and ((request.call, phase) in at_odds or _doubt(of) > 1)
        )
        if phases:
            doubts[Request(call=request.call, phases=phases)] = max(_doubt(found[phase]) for phase in phases)
    return sorted(doubts, key=lambda request: -doubts[request])


def _doubt(rows: Sequence[Sample]) -> float:
    """The doubt about the rows of a call, which are timed again above 1: the distance of the STEADY_ROWS nearest to the reference pace, or
    to the rows' median where that is larger, each as a multiple of the distance that counts as near."""
    log_us = [math.log(row.time_us * row.pace) for row in rows]
    middle = median(log_us)
    last = min(STEADY_ROWS, len(rows)) - 1
    from_pace = sorted(abs(math.log(row.pace)) for row in rows)[last]
    from_median = sorted(abs(one - middle) for one in log_us)[last]
    return max(from_pace / FAR_PACE, from_median / FAR_TIME)
