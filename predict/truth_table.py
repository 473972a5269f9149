"""The one reader of tables of measured runs: training, rankings, memory, servers and RL steps alike."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sampling.errors import ConfigError
from sampling.files.disk import NotReadError, is_missing, read_text
from sampling.files.faults import Fault, config_error, did_you_mean, shown
from sampling.files.schema import Key, build, keys_of

NOT_STATED = {"-", "–", "—", "?", "n/a", "na", "not published", "unknown"}
"""Cells that state nothing, as blank ones do."""
NO_NUMBER = NOT_STATED | {"none", "null"}
"""Cells of a column of numbers that state nothing."""
YES_AND_NO = {"true": "1", "yes": "1", "on": "1", "1.0": "1", "false": "0", "no": "0", "off": "0", "0.0": "0"}
WORDS: Mapping[str, Mapping[str, str]] = {
    "pp_schedule": {
        "interleaved1f1b": "1F1B interleaved",
        "interleaved": "1F1B interleaved",
        "1f1binterleaved": "1F1B interleaved",
        "gpipe": "afab",
    },
    "moe_dispatch": {"a2a": "alltoall", "nccl": "alltoall", "ag": "allgather"},
    "recompute": {"no": "none", "false": "none", "off": "none", "0": "none", "true": "full"},
    "fp8_recipe": {"delayed": "tensorwise", "pertensor": "tensorwise", "current": "tensorwise", "mx": "mxfp8"},
    "status": {"success": "ok", "outofmemory": "oom", "failed": "error"},
}
"""Column → a publisher's word, without case, spaces, hyphens and underscores → ours."""
CONTAINER = re.compile(
    r"(?:.*[:/ ])?v?(?P<tag>\d\d\.(?:0[1-9]|1[0-2])(?:\.\d\d)?)(?:[.\-_ ]?(?:rc\d*|alpha\d*|beta\d*|py\d|post\d+).*)?"
)
"""A container's tag such as `25.04.rc2`, `nemo:25.04` or `25.09-py3`."""
DENSE_LAYERS = re.compile(r"(?:dense_layers|first_k_dense(?:_replace)?|num_dense_layers)\s*[=:]\s*(?P<count>\d+)")


def as_ours(key: Key, text: str) -> str:
    """A cell in our words; as it is where it is one already, or none that is known; empty where it states nothing."""
    plain = text.casefold()
    number = key.kind in ("integer", "number")
    if plain in (NO_NUMBER if number else NOT_STATED):
        return ""
    if key.kind == "boolean":
        return YES_AND_NO.get(plain, text)
    if key.name in REWRITTEN:
        return REWRITTEN[key.name](text)
    return text if number or key.malformed(text) is None else _known_word(key, text)


def _known_word(key: Key, text: str) -> str:
    own = {_squeezed(choice): choice for choice in (key.choices() if key.choices else ())}
    return ({**own, **WORDS.get(key.name, {})}).get(_squeezed(text), text)


def _tag(text: str) -> str:
    found = CONTAINER.fullmatch(text)
    return found["tag"] if found else text


def _dense_layers(text: str) -> str:
    return DENSE_LAYERS.sub(lambda found: f"first {found['count']} layers dense", text)


REWRITTEN: Mapping[str, Callable[[str], str]] = {"date": _tag, "moe_layer_note": _dense_layers}
"""Columns of free text; a part of the text has forms of its own."""


def decimal_point(text: str) -> str:
    """A number of a table with semicolons, whose comma is the decimal one (`3,5` or `1.234,5`), with a decimal point."""
    found = re.fullmatch(r"(-?\d+(?:\.\d{3})*),(\d+)(.*)", text)
    return f"{found[1].replace('.', '')}.{found[2]}{found[3]}" if found else text


def _squeezed(text: str) -> str:
    return re.sub(r"[\s_-]", "", text.casefold())


MOST_UNKNOWN = 10
"""Unknown columns that are reported."""
LONGEST_NUMBER = 100
"""Characters of a number."""
GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?k?")
"""A number with a comma between its thousands."""
OWN = "a column of your own is passed over where its name starts with _"
Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """The columns that a kind of table may have."""

    what: str
    """The table in words, as `a CSV file of published runs`."""
    keys: Mapping[str, Key]
    """Those that are read."""
    other_names: Mapping[str, str] = field(default_factory=dict)
    """Names of the same columns in tables of others, and ours."""
    not_read: Mapping[str, str] = field(default_factory=dict)
    """What columns that are known and not read hold, and their names, apart by spaces."""
    needed: tuple[str, ...] = ()
    """Columns that a table must have in addition to those that every row needs, though a row may leave them blank."""
    see: str = ""
    """Where the columns are described."""

    @property
    def unread_names(self) -> frozenset[str]:
        return frozenset(name for names in self.not_read.values() for name in names.split())


def columns_of(
    declared: type,
    what: str,
    *,
    other_names: Mapping[str, str] | None = None,
    not_read: Mapping[str, str] | None = None,
    needed: tuple[str, ...] = (),
    see: str = "",
) -> Columns:
    """The columns that a dataclass declares by its fields."""
    keys = {key.name: key for key in keys_of(declared)}
    return Columns(what=what, keys=keys, other_names=other_names or {}, not_read=not_read or {}, needed=needed, see=see)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cells:
    """One row of a table."""

    place: int
    """The row's place below the header, from 1."""
    stated: Mapping[str, str]
    """Our name of a column → its text in our words; columns that the row leaves blank are missing."""
    fault: str = ""
    """Why the row cannot be read, every fault of its cells."""


def read_cells(path: Path, columns: Columns, option: str = "--truth") -> list[Cells]:
    """The rows of the table that an option names.

    ConfigError where there is no such file, where it is not a table, and for its columns: unknown ones, those given twice, and those that
    every row needs and the table has not.
    """
    if is_missing(path):
        raise ConfigError(f"{option}: {path}: there is no such file; give {columns.what}")
    try:
        table = csv_table(read_text(path))
    except NotReadError as error:
        raise ConfigError(f"{option}: {path} cannot be read ({error}); give {columns.what}") from None
    if not table.rows:
        raise ConfigError(f"{option}: {path} holds no rows; give {columns.what}")
    if faults := list(faults_of_header(table.names, columns)):
        see = "; ".join(filter(None, (columns.see, OWN)))
        raise ConfigError("\n".join(f"{option}: {path}: {fault}" for fault in [*faults, see]))
    return [_cells(table, row, place, columns) for place, row in enumerate(table.rows, 1)]


def read_declared(path: Path, cls: type[Row], columns: Columns, option: str = "--truth") -> list[Row]:
    """The rows of a table as objects of the class that declares its columns; ConfigError with the faults of all rows at once."""
    found: list[Row] = []
    faults: list[Fault] = []
    for row in read_cells(path, columns, option):
        if row.fault and not list(faults_of_cells(row.stated, columns)):  # a line of another length than the header
            faults.append(Fault(path=f"row {row.place}", problem=row.fault))
            continue
        values: dict[str, Any] = {
            name: value_of(columns.keys[name], text) for name, text in row.stated.items() if name in columns.keys
        }
        made, wrong = build(cls, values, section=f"row {row.place}")
        faults += wrong
        if made:
            found.append(made)
    if faults:
        raise config_error(faults, {"": str(path)})
    return found


def header_of(path: Path) -> tuple[str, ...]:
    """The names of a table's columns; none where it cannot be read."""
    try:
        return csv_table(read_text(path)).names
    except NotReadError:
        return ()


def _cells(table: CsvTable, row: tuple[str, ...], place: int, columns: Columns) -> Cells:
    ours = {columns.other_names.get(name, name): text for name, text in table.stated(row).items()}
    stated = {name: _in_our_words(columns.keys.get(name), text, table.separator) for name, text in ours.items()}
    stated = {name: text for name, text in stated.items() if text}
    if len(row) == len(table.names):
        fault = "; ".join(faults_of_cells(stated, columns))
    else:
        fault = f"{len(row)} cells for {len(table.names)} columns; give one for each, with quotes around one that has a comma"
    return Cells(place=place, stated=stated, fault=fault)


def _in_our_words(key: Key | None, text: str, separator: str) -> str:
    if key is None:
        return text
    if separator == ";" and key.kind == "number":
        text = decimal_point(text)
    return as_ours(key, text)


def faults_of_header(names: tuple[str, ...], columns: Columns) -> Iterator[str]:
    """Columns that a table of this kind needs and lacks, unknown ones, and those given twice."""
    own = [columns.other_names.get(name, name) for name in names]
    needed = [name for name, key in columns.keys.items() if key.required or name in columns.needed]
    if lacking := [name for name in needed if name not in own]:
        yield f"lacks the columns {', '.join(lacking)}; give {columns.what}"
    known = [*columns.keys, *columns.other_names, *columns.unread_names]
    unknown = [name for name in names if name not in known and not name.startswith("_")]
    for name in unknown[:MOST_UNKNOWN]:
        yield f"unknown column {shown(name)}{did_you_mean(name, known)}"
    if len(unknown) > MOST_UNKNOWN:
        yield f"{len(unknown) - MOST_UNKNOWN} more unknown columns"
    for name, count in Counter(own).items():
        if count > 1 and name in columns.keys:
            meant = [given for given, column in zip(names, own, strict=True) if column == name]
            yield f"column {name} is given {count} times ({', '.join(meant)}); keep one"


def faults_of_cells(stated: Mapping[str, str], columns: Columns) -> Iterator[str]:
    """Each cell that is not what its column holds, and each blank one that the row needs."""
    for name, key in columns.keys.items():
        text = stated.get(name, "")
        if text and (problem := key.malformed(value_of(key, text))):
            yield f"{name}: {problem}"
        if key.required and not text:
            yield f"{name}: not stated; give {key.allowed()}"


def number_of(text: str) -> float | None:
    """The number that a cell starts with (`250k` is 250,000), a note after it aside; None for a blank or wordy one."""
    digits = text.partition(" ")[0][:LONGEST_NUMBER]
    if "," in digits and not GROUPED.fullmatch(digits):
        return None
    digits = digits.replace(",", "")
    try:
        return float(digits.removesuffix("k")) * (1000 if digits.endswith("k") else 1)
    except ValueError:
        return None


def value_of(key: Key, text: str) -> bool | int | float | str:
    """A cell as its column's kind, or as it is where it is not of that kind; yes and no are 1 and 0."""
    if key.kind == "boolean":
        return {"1": True, "0": False}.get(text, text)
    if key.kind not in ("integer", "number"):
        return text
    number = number_of(text)
    if number is None:
        return text
    return int(number) if key.kind == "integer" and number.is_integer() else number


# Tables of text: commas, semicolons, tabs or bars between cells, any ends of lines, with or without a byte-order mark.

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


def csv_table(text: str) -> CsvTable:
    """The table that a text holds; its separator is the one that parts the header into the most columns. NotReadError for a text that
    is not a table, such as one where a quote is never closed."""
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
