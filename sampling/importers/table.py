"""The tables that an importer makes of published files: rows of calls with a time each, and their provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sampling.call import Call, Phase


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One published time of one phase of a call. `flaw` is a fault that the publisher itself states; '' if none."""

    call: Call
    phase: Phase
    time_us: float
    flaw: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The rows of one published table and direction.

    `hardware` is a name of configs/hardware; `provenance` goes into the manifest; `remarks` say what was left out and why.
    """

    source: str
    name: str
    hardware: str
    rows: tuple[Row, ...]
    slot: str = ""
    """The name under which a later import replaces this table, if it is not `name`: the same for several versions."""
    threads: int = 0
    """CPU threads of the rank that was timed; 0 on a GPU."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def holding(self, rows: tuple[Row, ...] = (), *, remark: str = "") -> Table:
        """The table with these rows alone, and a remark unless it is empty."""
        return replace(self, rows=rows, remarks=(remark,) if remark else ())


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportRequest:
    """The user's request to an importer. An importer needs only what its files do not say themselves."""

    path: Path | None = None
    system: str = ""
    """The device, by the publisher's name or that of configs/hardware; '' for all that the files hold."""
    framework: str = ""
    collective: str = ""
    """The collective of a log whose header does not name it."""
    ranks_per_node: int = 0
    """GPUs per node of a trace; 0 for what the trace or the hardware file says."""
    threads: int = 0
    """CPU threads of a trace of a CPU; 0 for this machine's cores."""
