"""Constants judged on sources left out, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from predict.reports.text import figures_table
from predict.validation.left_out import JudgedConstant

if TYPE_CHECKING:
    from rich.console import RenderableType


def left_out_text(found: Sequence[JudgedConstant]) -> RenderableType:
    from rich.console import Group

    title = "constants that move these runs: stated, and the value of least error within the bounds, on all sources and with one left out"
    columns = ("stated", "bounds", "learnt", "one left out", "rows", "sources", "error, stated", "error, left out")
    table = figures_table(title, ("constant",), columns)
    for one in found:
        table.add_row(
            one.name,
            f"{one.stated:.4g}",
            f"{one.low:.4g} to {one.high:.4g}",
            f"{one.learnt:.4g}",
            f"{one.least:.4g} to {one.greatest:.4g}" if one.sources > 1 else "no other source",
            str(one.configurations),
            str(one.sources),
            f"{one.error_stated:.1f} %",
            f"{one.error_left_out:.1f} %",
        )
    last = "errors: mean absolute, in log time, of the rows that a constant moves; left out: each source with the value that others teach"
    return Group(table, last)
