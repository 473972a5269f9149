"""The parquet files of a profile: one table per call name, its fields and measurements as columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampling.catalogue import make_call
from sampling.errors import SamplesError
from sampling.files.disk import replacing
from sampling.store.sample import DEFAULTS, MAY_BE_UNKNOWN, MEASUREMENT_COLUMNS, Sample

if TYPE_CHECKING:
    import pandas as pd


def read_samples(directory: Path, names: Collection[str] | None = None) -> dict[str, pd.DataFrame]:
    """Call name → table of every row of a profile, quarantined ones included; `names` limits the call names.

    Raises SamplesError for a file that is not parquet or lacks a column, naming both.
    """
    import pandas as pd

    tables = {}
    for path in sorted(directory.glob("*.parquet")):
        if names is not None and path.stem not in names:
            continue
        try:
            table = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise SamplesError(f"{path}: cannot be read as parquet ({error}); restore or delete it") from None
        absent = [column for column in MEASUREMENT_COLUMNS if column not in table.columns]
        if missing := [column for column in absent if column not in DEFAULTS]:
            raise SamplesError(f"{path}: lacks the columns {missing}; it is not a sample table of this version")
        tables[path.stem] = table.assign(**{column: DEFAULTS[column] for column in absent})
    return tables


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
    with replacing(directory / f"{name}.parquet") as temporary:
        pd.DataFrame(rows).to_parquet(temporary, index=False, compression="zstd")
