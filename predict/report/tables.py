"""A plain table of figures: names on the left, figures on the right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def figures_table(title: str, names: Sequence[str], figures: Sequence[str]) -> Table:
    """A table without rows, with left-aligned columns `names` before right-aligned columns `figures`."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=True)
    for name in names:
        table.add_column(name)
    for name in figures:
        table.add_column(name, justify="right")
    return table
