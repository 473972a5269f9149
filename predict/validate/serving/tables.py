"""Tables of measured servers that a folder may have: their rows, with every fault of them in one error."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TypeVar

from predict.validate.truth.checks import value_of
from sampling.errors import SamplesError
from sampling.files.faults import Fault, config_error
from sampling.files.keys import keys_of
from sampling.files.regular import NotReadError, is_missing, read_text
from sampling.files.schema import build

Row = TypeVar("Row")


def read_rows(path: Path, cls: type[Row]) -> list[Row]:
    """The rows of a table, by the columns that `cls` declares; none where there is no such file.

    SamplesError for a file that cannot be read, and for faulty rows, all of them at once.
    """
    if is_missing(path):
        return []
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path))))
    except NotReadError as error:
        raise SamplesError(f"{path}: {error}") from None
    columns = {key.name: key for key in keys_of(cls)}  # type: ignore[arg-type]
    found: list[Row] = []
    faults: list[Fault] = []
    for place, row in enumerate(rows, 1):
        cells = {name: cell.strip() for name in columns if (cell := row.get(name)) and cell.strip()}
        made, wrong = build(
            cls, {name: value_of(columns[name], cell) for name, cell in cells.items()}, section=f"row {place}"
        )
        faults += wrong
        if made:
            found.append(made)
    if faults:
        raise config_error(faults, {"": str(path)}, error=SamplesError)
    return found
