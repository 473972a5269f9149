"""Judges imported rows by physical bounds alone, which are the same for every publisher."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from sampling.call import Call, Phase
from sampling.collectives.kinds import Collective
from sampling.errors import ConfigError
from sampling.hardware.cluster import Cluster
from sampling.importers.table import Row, Table
from sampling.number_text import count, plain, whole_percent
from sampling.speed_of_light import physical_bound_us

LAUNCH_US = 20.0
"""Kernel launch and framework overhead on a slow host, which even a tiny call may take on top of the bound."""
SLOWEST = 1000.0
"""Multiple of the bound beyond which the unit must be wrong: tuned kernels reach 10 % of a bound, naive ones 1 %."""
CONFLICT = 2.0
"""Largest ratio between repeats of one call; published repeats differ by a few per cent."""
NEIGHBOURS = 6
"""Messages on either side, by size, that a message is compared with."""
LIKE_SIZE = 1.25
"""Largest ratio between the sizes of messages that are compared."""
IMPOSSIBLE_SHARE = 0.20
"""Share of impossible rows beyond which the whole table is quarantined."""


def judge(table: Table, cluster: Cluster) -> tuple[str, ...]:
    """The reason why each row is quarantined; '' for a good one."""
    impossible = [row.flaw or impossible_reason(row.call, row.phase, row.time_us, cluster) for row in table.rows]
    share = sum(map(bool, impossible)) / max(1, len(impossible))
    erratic = erratic_share(table.rows)
    whole = f"its table is impossible: {whole_percent(share)} of the rows are" if share > IMPOSSIBLE_SHARE else ""
    if erratic > IMPOSSIBLE_SHARE:
        whole = f"its table is erratic: {whole_percent(erratic)} of the rows differ over {plain(CONFLICT)} times from messages of like size"
    if whole:
        return tuple(f"{reason}; {whole}" if reason else whole for reason in impossible)
    return tuple(
        reason or conflict for reason, conflict in zip(impossible, _conflicts(table.rows, impossible), strict=True)
    )


def impossible_reason(call: Call, phase: Phase, time_us: float, cluster: Cluster) -> str:
    """Why no device of the cluster's kind can have measured this time; '' if one can."""
    if not (math.isfinite(time_us) and time_us > 0):
        return f"no time: {time_us} µs"
    try:
        bound_us = physical_bound_us(call, phase, cluster)
    except (ConfigError, ArithmeticError, ValueError, TypeError) as error:
        return f"no bound to compare it with: {error}"
    if time_us < bound_us:
        return f"faster than the physical bound: {plain(time_us)} µs, at peak {plain(bound_us)} µs"
    if time_us > SLOWEST * (bound_us + LAUNCH_US):
        return f"wrong unit?: {plain(time_us)} µs is over {count(SLOWEST)} times the {plain(bound_us)} µs at peak"
    return ""


def erratic_share(rows: Sequence[Row]) -> float:
    """Share of the rows whose bandwidth differs from the bandwidth of messages of similar size; only collectives are checked.

    A slightly larger message takes slightly longer. Where the traffic of other jobs decides, times are erratic.
    """
    alike: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if isinstance(row.call, Collective) and row.time_us > 0 and row.call.size_bytes > 0:
            fields = {**row.call.fields(), "size_bytes": 0}
            alike.setdefault((row.call.NAME, *fields.values()), []).append(row)
    return sum(map(_erratic_rows, alike.values())) / max(1, len(rows))


def _erratic_rows(rows: Sequence[Row]) -> int:
    by_size = sorted((row.call.fields()["size_bytes"], row.time_us) for row in rows)
    rates = [size / time_us for size, time_us in by_size]
    count = 0
    for place, (size, _) in enumerate(by_size):
        around = range(max(0, place - NEIGHBOURS), min(len(rates), place + NEIGHBOURS + 1))
        near = [rates[other] for other in around if 1 / LIKE_SIZE <= by_size[other][0] / size <= LIKE_SIZE]
        if len(near) > NEIGHBOURS:
            count += not 1 / CONFLICT <= rates[place] / statistics.median(near) <= CONFLICT
    return count


def _conflicts(rows: Sequence[Row], impossible: Sequence[str]) -> list[str]:
    """The way in which each row contradicts the other possible rows of the same call and phase; '' if it does not."""
    alike: dict[tuple[Call, Phase], list[int]] = {}
    for index, row in enumerate(rows):
        if not impossible[index]:
            alike.setdefault((row.call, row.phase), []).append(index)
    reasons = [""] * len(rows)
    for group in alike.values():
        if len(group) == 1:
            continue
        times = [rows[index].time_us for index in group]
        if max(times) <= CONFLICT * min(times):
            continue
        for place, index in enumerate(group):
            others_us = statistics.median(times[:place] + times[place + 1 :])
            if not 1 / CONFLICT <= times[place] / others_us <= CONFLICT:
                reasons[index] = f"conflicting duplicates: {plain(times[place])} µs, others {plain(others_us)} µs"
    return reasons
