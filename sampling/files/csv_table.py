"""Tables of text as spreadsheets and scripts write them: commas, semicolons, tabs or bars between cells, any ends of lines, with or
without a byte-order mark."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from sampling.files.disk import NotReadError, read_text

BYTE_ORDER_MARK = "\ufeff"
SEPARATORS = (",", ";", "\t", "|")


@dataclass(frozen=True, kw_only=True, slots=True)
class CsvTable:
    """The cells of a table, without the spaces around them. Lines and columns without any text are left out."""

    names: tuple[str, ...]
    """The header."""
    rows: tuple[tuple[str, ...], ...]
    """The rows below it, each as long as its line: not always as long as the header."""
    separator: str

    def stated(self, row: tuple[str, ...]) -> dict[str, str]:
        """Column → text of a row's cells that are not blank."""
        return {name: cell for name, cell in zip(self.names, row, strict=False) if cell}


def read_csv_table(path: Path) -> CsvTable:
    """The table of a regular UTF-8 file; NotReadError for any other file, such as one where a quote is never closed."""
    return csv_table(read_text(path))


def csv_table(text: str) -> CsvTable:
    """The table that a text holds; its separator is the one that parts the header into the most columns."""
    text = text.removeprefix(BYTE_ORDER_MARK)
    header = text.lstrip().partition("\n")[0]
    separator = max(SEPARATORS, key=lambda each: len(_split(header, each)[0]))
    lines = [[cell.strip() for cell in line] for line in _split(text, separator)]
    lines = [line for line in lines if any(line)]
    if not lines:
        return CsvTable(names=(), rows=(), separator=separator)
    width = max((len(lines[0]), *(len(line) for line in lines)))
    while width and not any(line[width - 1] for line in lines if len(line) >= width):
        width -= 1  # spreadsheets write columns that were used once
    names, *rows = (tuple(line[:width]) for line in lines)
    return CsvTable(names=names, rows=tuple(rows), separator=separator)


def _split(text: str, separator: str) -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO(text, newline=None), delimiter=separator, strict=True)) or [[]]
    except csv.Error as error:
        raise NotReadError(f"is not a table of text ({error}); give a CSV file") from None
