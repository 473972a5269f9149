"""A table that keeps every figure whole in a narrow terminal: names are folded, then figures go below each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

LONGEST_WORDS = (12, 8)
"""Columns that a name keeps at least, if it has so many; longer words are folded. The second is for tables that it brings to fewer
parts."""
GAP = 2
"""Columns between two columns of a table."""


class NarrowTable(Table):
    """rich's table, whose right-aligned columns are figures: rich would cut a figure short where the table is too wide."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if sum(_measured(console, column).maximum + GAP for column in self.columns) <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        names = [replace(column, overflow="fold") for column in self.columns if column.justify != "right"]
        figures = [_whole(console, column) for column in self.columns if column.justify == "right"]
        rooms = (options.max_width - _least_of_names(console, names, longest) for longest in LONGEST_WORDS)
        parts = min(([*_beside(console, figures, room)] for room in rooms), key=len)
        for number, part in enumerate(parts):
            if number:
                yield Text("")
            table = self._part([*names, *part], titled=number == 0)
            yield from Table.__rich_console__(table, console, options)

    def _part(self, columns: Sequence[Column], *, titled: bool) -> Table:
        """The same rows with some of the columns, in the order that they have here."""
        kept = sorted(columns, key=lambda column: column._index)
        made = Table(title=self.title if titled else None, title_justify=self.title_justify, box=self.box)
        made.columns = [replace(column, _index=place) for place, column in enumerate(kept)]
        made.rows = self.rows
        return made


def _beside(console: Console, figures: Sequence[Column], room: int) -> Iterator[list[Column]]:
    """The figures in groups that fit beside each other."""
    group: list[Column] = []
    width = 0
    for column in figures:
        own = _measured(console, column).maximum + GAP
        if group and width + own > room:
            yield group
            group, width = [], 0
        group.append(column)
        width += own
    yield group


def _measured(console: Console, column: Column) -> Measurement:
    """The widths of a column: that of its longest word, and that of its longest line."""
    cells = [Measurement.get(console, console.options, each) for each in (column.header, *column._cells)]
    return Measurement(max(each.minimum for each in cells), max(each.maximum for each in cells))


def _least_of_names(console: Console, names: Sequence[Column], longest: int) -> int:
    return sum(min(_measured(console, column).minimum, longest) + GAP for column in names)


def _whole(console: Console, column: Column) -> Column:
    """A column of figures that is as narrow as they are, under a heading in several lines."""
    heading = Text.from_markup(column.header) if isinstance(column.header, str) else Text(str(column.header))
    figures = [Measurement.get(console, console.options, each).maximum for each in column._cells]
    words = [len(word) for word in heading.plain.split()]
    lines = heading.wrap(console, max([1, *figures, *words]))
    return replace(column, header=Text("\n").join(lines), no_wrap=True)
