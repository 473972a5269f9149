"""A sweep as a table in a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from predict.plan_search.sweep import Predicted, Sweep, SweptRows
from predict.reports.text import figures_table, first_lines_of
from predict.serialise import version_of
from predict.step.prediction import Prediction
from sampling.files.faults import counted
from sampling.number_text import duration, durations
from sampling.units import GIB

if TYPE_CHECKING:
    from rich.console import RenderableType


FIGURES = ("step time", "90 %", "tokens/s/GPU", "MFU", "memory GiB", "fits")


def sweep_text(sweep: Sweep) -> RenderableType:
    """The rows that the predictions rest on, a row a combination of a run config, then why others cannot run."""
    from rich.console import Group

    table = rows_text(sweep, title_of(sweep), [each.path for each in sweep.varied], FIGURES, _figures)
    return Group(*first_lines_of(*(row.prediction for row in sweep.rows if row.prediction)), table)


def title_of(sweep: SweptRows[Any]) -> str:
    """The number of combinations, and of those that can run."""
    run = sum(row.prediction is not None for row in sweep.rows)
    return f"{sweep.name}: {counted(len(sweep.rows), 'combination')}, {run} can run"


def rows_text(
    sweep: SweptRows[Predicted],
    title: str,
    titles: Sequence[str],
    names_of_figures: Sequence[str],
    figures: Callable[[Predicted], Sequence[str]],
) -> RenderableType:
    """A row per combination with its figures, then why others cannot run, each reason once; `titles` are those of the varied keys."""
    from rich.console import Group
    from rich.markup import escape

    names = [each.path for each in sweep.varied]
    table = figures_table(escape(title), (), (*titles, *names_of_figures))
    left_out: dict[str, list[str]] = {}
    for row in sweep.rows:
        values = [str(row.values[name]) for name in names]
        if row.prediction is None:
            left_out.setdefault(row.reason, []).append(" · ".join(values))
        else:
            table.add_row(*map(escape, values), *figures(row.prediction))
    reasons = [f"  {escape(', '.join(which))}: {escape(why)}" for why, which in left_out.items()]
    return Group(table, *(["", f"cannot run ({' · '.join(names)}):", *reasons] if reasons else []))


def _figures(prediction: Prediction) -> tuple[str, ...]:
    step, memory = prediction.step_time, prediction.memory
    return (
        duration(step.median_us),
        durations(step.low_us, step.high_us),
        f"{prediction.tokens_per_second_per_gpu:,.0f}",
        f"{prediction.mfu:.1%}",
        f"{memory.point_bytes / GIB:,.1f} of {memory.capacity_bytes / GIB:,.1f}",
        memory.verdict,
    )


def sweep_json(sweep: Sweep, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The long table's rows, and the keys that were varied."""
    return {
        "version": version_of("sweep"),
        "run": sweep.name,
        "varied": {each.path: list(each.values) for each in sweep.varied},
        "rows": [dict(row) for row in rows],
    }
