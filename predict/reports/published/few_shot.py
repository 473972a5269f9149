"""Few-shot calibration judged, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from predict.measured_runs.calibrate import RULE
from predict.reports.text import figures_table
from predict.validation.few_shot import FewShot
from predict.validation.published_scores import figures

if TYPE_CHECKING:
    from rich.console import RenderableType


def few_shot_text(judged: Sequence[FewShot], count: int) -> RenderableType:
    from rich.console import Group
    from rich.markup import escape

    columns = ("fitted to", "others", "error before", "after", "inside before", "after")
    table = figures_table(
        f"each source's other configurations, before and after {count} were measured", ("source",), columns
    )
    refused = []
    for one in judged:
        before, after = figures([], one.before), figures([], one.after)
        fitted = len(one.posterior.runs) if one.posterior else 0
        table.add_row(
            one.source,
            str(fitted),
            str(before["rows"]),
            f"{before['mean_error_percent']:.1f} %",
            f"{after['mean_error_percent']:.1f} %",
            f"{before['coverage']:.0%}",
            f"{after['coverage']:.0%}",
        )
        refused += [escape(f"{one.source} refused: {one.refused}")] if one.refused else []
    return Group(table, *refused, f"chosen {RULE}")
