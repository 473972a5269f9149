"""The parquet files of a profile: one table per call name, its fields and measurements as columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, get_args

from sampling.call import Phase, State, make_call, registry
from sampling.errors import SamplesError
from sampling.files.disk import NotReadError, replacing, require_regular
from sampling.files.faults import shown
from sampling.store.sample import COLUMN_TYPES, DEFAULTS, MAY_BE_UNKNOWN, MEASUREMENT_COLUMNS, TYPES, Sample

if TYPE_CHECKING:
    import pandas as pd


TEXTS: Mapping[str, tuple[str, ...]] = {"Phase": get_args(Phase), "State": get_args(State)}
"""Declared types of text → the texts allowed."""


def first_unsound(call_name: str, column: str, cells: Sequence[Any]) -> int | None:
    """The place of the first cell that no sampler writes in a column; None if all are sound, and for a column that is not a field of the
    call, which `make_call` reports."""
    declared = COLUMN_TYPES.get(column) or _declared_fields(call_name).get(column)
    if declared is None:
        return None
    types, texts = TYPES[declared], TEXTS.get(declared)
    counts = types == (int,)
    for place, cell in enumerate(cells):
        if type(cell) not in types or (counts and cell < 0) or (texts and cell not in texts):
            return place
    return None


def _declared_fields(call_name: str) -> Mapping[str, str]:
    cls = registry().get(call_name)
    return {field.name: str(field.type) for field in fields(cls)} if cls else {}


MOST_CELLS = 100_000_000
"""Largest number of rows · columns that is read; a file of few bytes can state many."""
DAMAGES = (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError)
"""Errors that pyarrow and pandas raise for a damaged file."""


def parquet_table(file: Path | IO[bytes]) -> pd.DataFrame:
    """The table in a parquet file; NotReadError for a damaged one, or one too large."""
    import pandas as pd
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        if isinstance(file, Path):
            require_regular(file)
            # opened here: pyarrow refuses names that are not UTF-8
            with file.open("rb") as stream:
                return parquet_table(stream)
        # the stream stays open
        metadata = ParquetFile(file).metadata
        if metadata.num_rows * metadata.num_columns > MOST_CELLS:
            raise NotReadError(
                f"{metadata.num_rows:,} rows of {metadata.num_columns:,} columns, more than the {MOST_CELLS:,} cells that are read"
            )
        return pd.read_parquet(file)
    except (ArrowException, *DAMAGES) as error:
        raise NotReadError((str(error).splitlines() or [type(error).__name__])[0]) from None


def read_samples(directory: Path, names: Collection[str] | None = None) -> dict[str, pd.DataFrame]:
    """Call name → table of every row of a profile, quarantined ones included; `names` limits the call names.

    Raises SamplesError for a file that is not parquet or lacks a column, naming both.
    """

    tables = {}
    for path in sorted(directory.glob("*.parquet")):
        if names is not None and path.stem not in names:
            continue
        try:
            table = parquet_table(path)
        except NotReadError as error:
            raise SamplesError(f"{path}: cannot be read as parquet ({error}); restore or delete it") from None
        absent = [column for column in MEASUREMENT_COLUMNS if column not in table.columns]
        if missing := [column for column in absent if column not in DEFAULTS]:
            raise SamplesError(f"{path}: lacks the columns {missing}; it is not a sample table of this version")
        whole = table.assign(**{column: DEFAULTS[column] for column in absent})
        _require_sound(whole, path)
        tables[path.stem] = whole
    return tables


def _require_sound(table: pd.DataFrame, path: Path) -> None:
    """SamplesError for the first cell that no sampler writes there."""
    for column in map(str, table.columns):
        cells = table[column].tolist()
        if (place := first_unsound(path.stem, column, cells)) is not None:
            raise SamplesError(
                f"{path}: row {place + 1}: {column}: {shown(cells[place])} is not what a sampler writes there; restore the "
                "file, or delete it and sample again"
            )


def iterate_samples(tables: Mapping[str, pd.DataFrame]) -> Iterator[Sample]:
    """The rows of `read_samples` as Sample objects."""
    for name, table in tables.items():
        columns = [column for column in table.columns if column not in MEASUREMENT_COLUMNS]
        for row in table.to_dict("records"):
            measured = {str(key): _plain(row[key]) for key in MEASUREMENT_COLUMNS}
            measured |= {key: None for key in MAY_BE_UNKNOWN if measured[key] is None or math.isnan(measured[key])}
            yield Sample(call=make_call(name, {column: _plain(row[column]) for column in columns}), **measured)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def write_table(directory: Path, name: str, samples: Sequence[Sample]) -> None:
    """Replace the profile's rows of one call name by `samples`."""
    import pandas as pd

    rows = [
        {**sample.call.fields(), **{column: getattr(sample, column) for column in MEASUREMENT_COLUMNS}}
        for sample in samples
    ]
    with replacing(directory / f"{name}.parquet") as temporary, temporary.open("wb") as stream:
        pd.DataFrame(rows).to_parquet(stream, index=False, compression="zstd")
