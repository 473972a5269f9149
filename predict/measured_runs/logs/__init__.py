"""Formats of training logs, found by themselves. A format is a module of this folder with

- `FRAMEWORK`, the name of what writes it,
- `read(lines)`, which yields what they tell of steps, in order,
- `peak_bytes(line)`, the peak of allocated memory per GPU that a line tells, None for any other line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from predict.measured_runs.steady_state import LoggedStep
from sampling.additions import add, modules_of


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFormat:
    read: Callable[[Iterable[str]], Iterator[LoggedStep]]
    peak_bytes: Callable[[str], float | None]


def formats() -> dict[str, LogFormat]:
    """Every format by the name of its framework."""
    found: dict[str, LogFormat] = {}
    for module in modules_of(__name__):
        if hasattr(module, "FRAMEWORK"):
            add(found, module.FRAMEWORK, LogFormat(read=module.read, peak_bytes=module.peak_bytes), "formats of logs")
    return found
