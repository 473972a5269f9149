"""RL steps side by side, phase by phase, as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from predict.report.rl.step import rl_step_json
from predict.report.tables import figures_table
from predict.rl.phase import NAMES
from sampling.number_text import duration, signed_percent
from sampling.units import GIB

if TYPE_CHECKING:
    from rich.table import Table

    from predict.rl.step import RlStep

VERSION = 1


def rl_compare_text(steps: Sequence[RlStep]) -> Table:
    """A column for each step: its phases, the step, what it trains on per second, and its memory; with the change from the first."""
    table = figures_table("", ("",), [escape(step.rl.name) for step in steps])
    for name in NAMES:
        phases = [step.phase(name) for step in steps]
        if any(phases):
            _add(table, name, [phase.time.median_us if phase else None for phase in phases])
    _add(table, "step", [step.time.median_us for step in steps])
    table.add_row("tokens/s per GPU", *(f"{step.tokens_per_second_per_gpu:,.0f}" for step in steps))
    table.add_row("GPUs", *(str(step.rl.gpus) for step in steps))
    table.add_row("most memory per GPU", *(f"{step.memory.worst.peak / GIB:.1f} GiB" for step in steps))
    return table


def _add(table: Table, name: str, times_us: Sequence[float | None]) -> None:
    """A row of times, those after the first with their change."""
    first, *others = times_us
    cells = ["" if first is None else duration(first)]
    for time_us in others:
        change = f" ({signed_percent(time_us / first - 1, decimals=0)})" if time_us is not None and first else ""
        cells.append("" if time_us is None else duration(time_us) + change)
    table.add_row(name, *cells)


def rl_compare_json(steps: Sequence[RlStep]) -> dict[str, Any]:
    """The content of `predict rl-step --json` for each, in their order."""
    return {"version": VERSION, "steps": [rl_step_json(step) for step in steps]}
