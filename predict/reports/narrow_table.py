"""A table that keeps every figure whole in a narrow terminal: names are folded, then columns go below each other, each part with the
keys that tell the rows apart."""

import re
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from predict.reports.text import Hanging, escape

LONGEST_WORDS = (24, 16, 12, 8)
"""Characters up to which the words of names and notes stay whole, and beyond which they are folded at their marks; the first with which a
table has the fewest parts is taken. Nothing but a piece that is longer than the first is cut."""
PIECES = re.compile(r".+?(?:[_./-]+(?=\w)|$)")
"""The pieces of a word, each with the marks behind it."""
GAP = 2
"""Columns between two columns of a table."""


class NarrowTable(Table):
    """rich's table, whose right-aligned columns are figures: rich would cut a figure short where the table is too wide. `keys` is the
    number of leading columns that stand in each part; by default the names before the first figure, or the first column."""

    keys = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if isinstance(self.title, Text) and self.title.cell_len > options.max_width:
            yield Hanging(
                f"[{self.title.style}]{escape(self.title.plain)}[/]"
            )  # over the table, where it may be wrapped
            untitled = copy(self)
            untitled.title = None
            yield from untitled.__rich_console__(console, options)
            return
        if sum(_measured(console, column).maximum + GAP for column in self.columns) <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        names = next((place for place, column in enumerate(self.columns) if _is_figure(column)), len(self.columns))
        keys = self.keys or names or 1
        forms: list[list[list[Column]]] = []
        for longest in LONGEST_WORDS:
            columns = [_narrowed(console, column, longest) for column in self.columns]
            room = options.max_width - sum(map(_least, columns[:keys]))
            forms.append([[*columns[:keys], *part] for part in _beside(columns[keys:], room)])

        def worth(parts: list[list[Column]]) -> tuple[int, int]:
            too_wide = max(sum(map(_least, part)) for part in parts) - options.max_width
            return max(0, too_wide), len(parts)

        chosen: list[list[Column]] = min(forms, key=worth)
        for number, part in enumerate(chosen):
            if number:
                yield Text("")
            yield from Table.__rich_console__(self._part(part, options.max_width, number), console, options)

    def _part(self, columns: Sequence[Column], width: int, number: int) -> Table:
        """The same rows with some of the columns, which share what room there is."""
        made = Table(
            title=None if number else self.title, title_justify=self.title_justify, box=self.box, padding=self.padding
        )
        made.rows = self.rows
        spare = width - sum(map(_least, columns))
        for place, column in enumerate(columns):
            least, most = column.min_width or 0, column.max_width or 0
            more = max(0, min(spare, most - least))
            spare -= more
            made.columns.append(replace(column, _index=place, width=least + more))
        return made


def _is_figure(column: Column) -> bool:
    return column.justify == "right"


def _beside(columns: Sequence[Column], room: int) -> Iterator[list[Column]]:
    """The columns in groups that fit beside each other."""
    group: list[Column] = []
    for column in columns:
        if group and sum(map(_least, [*group, column])) > room:
            yield group
            group = []
        group.append(column)
    yield group


def _least(column: Column) -> int:
    """Columns of the terminal that a column takes at least."""
    return (column.min_width or 0) + GAP


def _measured(console: Console, column: Column) -> Measurement:
    """The widths of a column: that of its longest word, and that of its longest line."""
    cells = [Measurement.get(console, console.options, each) for each in (column.header, *column._cells)]
    return Measurement(max(each.minimum for each in cells), max(each.maximum for each in cells))


def _narrowed(console: Console, column: Column, longest: int) -> Column:
    """A column with the least and the most width that it may have: of figures whole ones under a heading in several lines, of names and
    notes their words, of which longer ones are folded at their marks."""
    if not _is_figure(column):
        column = replace(column, _cells=[_folded(cell, longest) for cell in column._cells])
        widths = _measured(console, column)
        return replace(
            column, overflow="fold", min_width=min(widths.minimum, LONGEST_WORDS[0]), max_width=widths.maximum
        )
    heading = Text.from_markup(column.header) if isinstance(column.header, str) else Text(str(column.header))
    figures = [Measurement.get(console, console.options, each).maximum for each in column._cells]
    words = [len(word) for word in heading.plain.split()]
    width = max([1, *figures, *words])
    lines = heading.wrap(console, width)
    return replace(column, header=Text("\n").join(lines), no_wrap=True, min_width=width, max_width=width)


def _folded(cell: RenderableType, longest: int) -> RenderableType:
    """A name whose long words go on in another line after a mark: `gradient_` above `accumulation`."""
    return (
        "\n".join(" ".join(_lines(word, longest) for word in line.split(" ")) for line in cell.split("\n"))
        if isinstance(cell, str)
        else cell
    )


def _lines(word: str, longest: int) -> str:
    """A word in as few lines of `longest` characters as its marks allow."""
    lines = [""]
    for piece in PIECES.findall(word):
        if lines[-1] and len(lines[-1] + piece) > longest:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)
