"""The long table: one row a combination, with figures in SI units under plain names, as CSV or Parquet takes them."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from predict.plan_search.sweep import SweptRows
from sampling.files.disk import replacing, write_atomically


def columns(found: SweptRows[Any]) -> list[str]:
    """The names of the columns: those of the kind, and a column for each varied key that has none of them."""
    return list(dict.fromkeys([*found.kind.columns.split(), *(each.path for each in found.varied)]))


def long_table(found: SweptRows[Any], *, commit: str) -> list[dict[str, Any]]:
    """The rows, each with every column; None where there is no figure. `commit` is the version of this program."""
    empty = dict.fromkeys(columns(found))
    rows = []
    for row in found.rows:
        values = {each.path: row.settings[each.path] for each in found.varied}
        cells = {**found.kind.row(row.prediction), "commit": commit} if row.prediction is not None else {}
        rows.append({**empty, **values, **cells, "reason": row.reason})
    return rows


def as_csv(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Write the rows: Parquet where the name ends so, which needs pyarrow, else CSV."""
    if path.suffix.lower() != ".parquet":
        write_atomically(path, as_csv(rows, names).encode())
        return
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({name: [row[name] for row in rows] for name in names})
    with replacing(path) as temporary, temporary.open("wb") as stream:
        pyarrow.parquet.write_table(table, stream)
