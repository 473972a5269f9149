"""Rows of tables of published runs for tests, by the columns of rows.csv: a dense run that is complete, a mixture that leaves much open …"""

import csv
from collections.abc import Mapping
from pathlib import Path

from predict.validation.published_row import PublishedRow


def _columns() -> dict[str, dict[str, str]]:
    """Name of a row → the cells that it states."""
    rows: dict[str, dict[str, str]] = {}
    with Path(__file__).with_name("rows.csv").open(newline="") as file:
        for cells in csv.DictReader(file):
            column = cells.pop("column")
            for name, text in cells.items():
                rows.setdefault(name, {}).update({column: text} if text else {})
    return rows


ROWS = _columns()
DENSE, MIXTURE = ROWS["dense"], ROWS["mixture"]


def row(**changes: str) -> PublishedRow:
    return PublishedRow(cells=DENSE | changes)


def written(path: Path, *rows: Mapping[str, str]) -> Path:
    columns = list(dict.fromkeys(column for each in rows for column in each))
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, columns)
        table.writeheader()
        table.writerows(rows)
    return path
