"""Signs in the steps of a log by themselves: pauses at a few of them, steps of uneven length, and steps that get slower.

Warm-up, the first tenth of the lines, is left out. A pause is a step of half as long again as the median or more; where pauses come at
even distances of many steps something is written or evaluated there, and otherwise the step waits for data: a loader's workers run dry
together, every few steps or at irregular ones. Steps that differ on the slow side alone, without pauses, have a rank that comes late at
times.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sampling.number_text import duration, percent

FEWEST = 12
"""Steps below which nothing is said."""
WARM_UP = 0.1
PAUSE = 1.5
"""Time of a step over the median from which on it is a pause."""
BETWEEN = 1.15
"""Time of a step over the median from which on it is neither usual nor, below PAUSE, a pause: a pause is apart from the usual steps."""
MOST_PAUSES = 0.35
"""Share of pauses from which on they are the usual step."""
WORKERS = 16
"""Even distance in steps, at most, at which a loader's workers run dry together: as many workers as loaders usually have. Assumed."""
EVEN = 0.9
"""Share of the distances between pauses that are multiples of the shortest."""
TAIL = 2.5
"""Width of the upper over that of the lower half of the steps, 10 % to 90 %, from which on the slow side is a tail; even noise has 1."""
LEAST_TAIL = 0.08
"""Share of the median by which the 90th percentile exceeds it where there is a tail."""
DRIFT = 1.04
"""Median of the last third over that of the first from which on steps get slower, where it is beyond their noise too."""
LEAST_LOST = 0.01
"""Share of the time from which on something is worth a sentence."""

DATA, SAVES, LATE_RANKS, SLOWER = "data_stalls", "saves", "stragglers", "drift"


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """One thing that the steps show, with the µs that it costs each step in the mean."""

    cause: str
    text: str
    cost_us: float
    over_median_us: float
    """The part of it that the mean of the steps has over their median."""


def seen_in(logged: Sequence[tuple[int, float]]) -> tuple[Seen, ...]:
    """The things that the steps of a log show, number and µs of each; the costliest first."""
    kept = logged[max(1, int(WARM_UP * len(logged))) :]
    if len(kept) < FEWEST:
        return ()
    numbers, times = (np.array(values, dtype=float) for values in zip(*kept, strict=True))
    found = [*_pauses(numbers, times), *_drift(times)]
    if not found:
        found += _tail(times)
    return tuple(sorted(found, key=lambda each: -each.cost_us))


def usual_noise(logged: Sequence[tuple[int, float]]) -> float:
    """Standard deviation in log time of the usual steps, by their quartiles."""
    low, high = np.percentile([time_us for _, time_us in logged], (25, 75))
    return float(np.log(high / low) / 1.349)


def _pauses(numbers: np.ndarray, times: np.ndarray) -> Iterator[Seen]:
    usual = float(np.median(times))
    paused = times > PAUSE * usual
    between = (times > BETWEEN * usual) & ~paused
    lost_us = float((times[paused] - usual).sum() / len(times))
    if not paused.any() or paused.mean() > MOST_PAUSES or lost_us < LEAST_LOST * times.mean():
        return
    if between.sum() > paused.sum():  # the end of a long slow side
        return
    count, longest = int(paused.sum()), float(times[paused].max())
    every = _period(numbers[paused], spacing=int(np.diff(numbers).min()))
    share = percent(lost_us / float(times.mean()))
    if every > WORKERS:
        yield Seen(
            cause=SAVES,
            text=f"Every {every} steps one takes up to {duration(longest)}, {share} of the time: a checkpoint or an evaluation.",
            cost_us=lost_us,
            over_median_us=lost_us,
        )
        return
    when = f"every {every} steps" if every else "at irregular steps"
    yield Seen(
        cause=DATA,
        text=f"{count} of {len(times)} steps, {when}, take up to {duration(longest)} where the usual one takes {duration(usual)}, {share} of the "
        "time: they wait for data, or for something else outside the step.",
        cost_us=lost_us,
        over_median_us=lost_us,
    )


def _period(numbers: np.ndarray, *, spacing: int) -> int:
    """The even distance in steps of those that pause; 0 where there is none, or none but the `spacing` of the log's own lines."""
    distances = np.diff(numbers)
    if len(distances) < 2:
        return 0
    shortest = int(distances.min())
    return shortest if shortest > spacing and (distances % shortest == 0).mean() >= EVEN else 0


def _drift(times: np.ndarray) -> Iterator[Seen]:
    third = len(times) // 3
    before = times[:third]
    thirds = [float(np.median(part)) for part in (before, times[third:-third], times[-third:])]
    first, mean, last = thirds[0], sum(thirds) / 3, thirds[-1]  # of medians, since pauses have a cost of their own
    noise = float(np.percentile(before, 75) - np.percentile(before, 25)) / 1.35 / np.sqrt(third)
    if last > DRIFT * first and last - first > 6 * noise:
        yield Seen(
            cause=SLOWER,
            text=f"Steps get slower: {duration(first)} in the first third of the log, {duration(last)} in the last: clocks that fall, a link that "
            "lost lanes, memory that fragments, or longer data.",
            cost_us=mean - first,
            over_median_us=max(0.0, mean - float(np.median(times))),
        )


def _tail(times: np.ndarray) -> Iterator[Seen]:
    low, usual, high = (float(each) for each in np.percentile(times, (10, 50, 90)))
    if high - usual < max(LEAST_TAIL * usual, TAIL * (usual - low)):
        return
    mean = float(times.mean())
    yield Seen(
        cause=LATE_RANKS,
        text=f"One step in ten takes {duration(high)} or more, the fastest tenth {duration(low)} or less, and the slow side alone is long: a rank "
        "comes late now and then, and all wait for it.",
        cost_us=mean - low,
        over_median_us=mean - usual,
    )
