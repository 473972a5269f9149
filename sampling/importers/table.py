"""What an importer makes of a published file: rows of our calls with a time each, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sampling.call import Call, Phase


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One published time of one phase of a call. `flaw` is what the publisher itself says is wrong with it; '' if nothing."""

    call: Call
    phase: Phase
    time_us: float
    flaw: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The rows of one published table and direction.

    `hardware` is a name of configs/hardware; `provenance` goes into the manifest; `notes` say what was left out and why.
    """

    source: str
    name: str
    hardware: str
    rows: tuple[Row, ...]
    slot: str = ""
    """What an import of it replaces, where that is more than a table of the same name: another version's, say."""
    threads: int = 0
    """CPU threads of the rank that was timed; 0 on a GPU."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What the user asked an importer for; an importer ignores what its files say themselves."""

    path: Path | None = None
    system: str = ""
    """As the publisher calls it or as configs/hardware does; '' for all that the files hold."""
    framework: str = ""
    collective: str = ""
    """For logs whose header does not name it."""
    ranks_per_node: int = 0
    """For traces, which may not say it; 0 for what the trace or the catalogue says."""
    threads: int = 0
    """For traces of a CPU, which do not say it; 0 for this machine's cores."""
