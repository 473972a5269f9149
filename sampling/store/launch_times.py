"""Time that the host's launching adds to calls, read from their rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from sampling.call import Call, Phase
from sampling.store.sample import Sample


def launch_us_by_call(samples: Iterable[Sample]) -> dict[tuple[Call, Phase], float]:
    """Median `launch_us` of each phase of a call, in µs, over its good rows that have one."""
    found: dict[tuple[Call, Phase], list[float]] = {}
    for sample in samples:
        if sample.launch_us is not None and not sample.quarantine:
            found.setdefault((sample.call, sample.phase), []).append(sample.launch_us)
    return {asked: statistics.median(times) for asked, times in found.items()}
