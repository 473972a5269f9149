"""One timed phase of a call, as a row of the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from types import NoneType
from typing import Any, get_args

from sampling.call import Call, Phase, State, make_call
from sampling.errors import SamplesError
from sampling.files.faults import shown

LARGEST = 2**63
"""Integers of a table are smaller."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One timed phase of a call, taken while `busy_ranks` ranks of `threads` CPU threads each ran on the node.

    `time_us`, `low_us` and `high_us` are the median, the 10th and the 90th percentile of the undisturbed repeats.
    `quarantine` says why regressors must not learn from the row; it is empty for a good row.
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
    """Clock of the multiprocessors in MHz at the end of the timing; None where the device does not report it."""
    power_w: float | None = None
    """Power of the board in W then; None where the device does not report it."""
    launch_us: float | None = None
    """µs that the host's launching adds to the call on an idle device: `exposed_us` minus the time of a replayed graph, or minus
    `time_us` where no graph could be captured. None on a CPU, for calls that span ranks, and for a row without pauses."""
    exposed_us: float | None = None
    """µs of the call on an idle device as the host launches it, kernel by kernel; `time_us` leaves launching out. None where
    `launch_us` is, and in rows of older samplers."""
    ran_kernel: str = ""
    """The kernel that ran, where the software chooses among several; for a whole layer the kernels of attention and of experts; empty
    where it does not choose, or does not say."""
    at_s: float | None = None
    """Middle of the timing, in seconds since the epoch; None in rows of older samplers and of others."""
    pace: float = 1.0
    """Pace of the machine then, as a share of the profile's reference pace (`sampling.store.pace`): `time_us` times it is the time at
    the reference pace. 1 where nothing was read at the time of the row."""

    @property
    def key(self) -> tuple[Call, Phase, int, int, State]:
        return self.call, self.phase, self.threads, self.busy_ranks, self.state

    def as_row(self) -> dict[str, Any]:
        measured = {name: getattr(self, name) for name in MEASUREMENT_COLUMNS}
        return {"call": self.call.NAME, "fields": self.call.fields(), **measured}


COLUMN_TYPES: Mapping[str, str] = {each.name: str(each.type) for each in fields(Sample) if each.name != "call"}
"""The declared types of the columns that measurements have, in their order."""
MEASUREMENT_COLUMNS = tuple(COLUMN_TYPES)
DEFAULTS: Mapping[str, Any] = {each.name: each.default for each in fields(Sample) if each.default is not MISSING}
"""Values of columns that older files lack."""
MAY_BE_UNKNOWN = tuple(name for name, declared in COLUMN_TYPES.items() if declared == "float | None")
"""Columns of numbers that may be missing."""
TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float": (float, int),
    "float | None": (float, int, NoneType),
    "Phase": (str,),
    "State": (str,),
}
"""The types of values that a declared type allows."""


def sample_from_row(row: Mapping[str, Any]) -> Sample:
    """The inverse of `Sample.as_row`; SamplesError for a value that a table cannot hold in its column."""
    measured = {name: row[name] if name in row else DEFAULTS[name] for name in MEASUREMENT_COLUMNS}
    sample = Sample(call=make_call(row["call"], row["fields"]), **measured)
    for name, declared in COLUMN_TYPES.items():
        _require_type(name, measured[name], TYPES[declared])
    for name, value in sample.call.fields().items():
        _require_type(name, value, (type(value),))
    if sample.phase not in get_args(Phase):
        raise SamplesError(f"phase: {shown(sample.phase)} is not known; it is one of {', '.join(get_args(Phase))}")
    return sample


def _require_type(name: str, value: Any, types: tuple[type, ...]) -> None:
    fits = type(value) in types
    if isinstance(value, str):
        fits = fits and value == value.encode(errors="ignore").decode()
    elif isinstance(value, int):
        fits = fits and abs(value) < LARGEST
    if not fits:
        raise SamplesError(
            f"{name}: {shown(value)} is not {' or '.join(each.__name__ for each in types)} of a table's size"
        )
