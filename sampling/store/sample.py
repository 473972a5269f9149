"""One timed phase of a call, as a row of the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sampling.call import Call, Phase, State
from sampling.catalogue import make_call

MEASUREMENT_COLUMNS = (
    "phase",
    "threads",
    "busy_ranks",
    "time_us",
    "low_us",
    "high_us",
    "repeats",
    "quarantine",
    "session",
    "origin",
    "state",
    "clock_mhz",
    "power_w",
    "launch_us",
)
DEFAULTS: Mapping[str, Any] = {"origin": "", "state": "burst", "clock_mhz": None, "power_w": None, "launch_us": None}
"""Values of columns that older files lack."""
MAY_BE_UNKNOWN = ("clock_mhz", "power_w", "launch_us")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One timed phase of a call, taken while `busy_ranks` ranks of `threads` CPU threads each ran on the node.

    `low_us` and `high_us` are the 10th and 90th percentile of the repeats. `quarantine` says why regressors must not
    learn from the row; it is empty for a good row.
    """

    call: Call
    phase: Phase
    threads: int
    busy_ranks: int
    time_us: float
    low_us: float
    high_us: float
    repeats: int
    quarantine: str
    session: int
    origin: str = ""
    """Empty for a row of our own sampler, `imported` for a published one, `filled: …` for a phase that nobody timed."""
    state: State = "burst"
    """`burst`: each repeat on a rested device; `sustained`: after a second of the same work, at the clock that power allows."""
    clock_mhz: float | None = None
    """Clock of the multiprocessors at the end of the timing; None where the device does not report it."""
    power_w: float | None = None
    launch_us: float | None = None
    """Time that the host adds to a call that it launches kernel by kernel: its time minus that of a replayed graph; None
    where no graph could be captured."""

    @property
    def key(self) -> tuple[Call, Phase, int, int, State]:
        return self.call, self.phase, self.threads, self.busy_ranks, self.state

    def as_row(self) -> dict[str, Any]:
        measured = {name: getattr(self, name) for name in MEASUREMENT_COLUMNS}
        return {"call": self.call.NAME, "fields": self.call.fields(), **measured}


def sample_from_row(row: Mapping[str, Any]) -> Sample:
    """The inverse of `Sample.as_row`."""
    measured = {name: row[name] if name in row else DEFAULTS[name] for name in MEASUREMENT_COLUMNS}
    return Sample(call=make_call(row["call"], row["fields"]), **measured)
