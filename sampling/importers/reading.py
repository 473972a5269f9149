"""Reads tables that somebody else wrote; a damaged file ends in one clear error."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sampling.errors import SamplesError
from sampling.files.regular import NotReadError, read_bytes
from sampling.store.tables import parquet_table

if TYPE_CHECKING:
    import pandas as pd

AGAIN = "; fetch the file again"


class AnotherKindError(SamplesError):
    """A sound file that is not one of its publisher's tables of times."""


NOT_AS_PUBLISHED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError)


def read_parquet(file: Path | IO[bytes], shown: str) -> pd.DataFrame:
    """Read a parquet file; SamplesError, with the file's name as `shown`, if it is empty, cut short or not parquet."""
    try:
        table = parquet_table(file)
    except NotReadError as error:
        raise unreadable(shown, "parquet", error) from None
    return _not_empty(table, shown)


def read_csv(file: Path) -> pd.DataFrame:
    """Read a CSV file; SamplesError if it is empty or not CSV."""
    import pandas as pd

    try:
        table = pd.read_csv(io.BytesIO(read_bytes(file)))
    except (NotReadError, ValueError) as error:  # EmptyDataError, ParserError and UnicodeDecodeError are ValueErrors
        raise unreadable(str(file), "CSV", error) from None
    return _not_empty(table, str(file))


def shown_name(file: Path, given: Path) -> str:
    """A file's path below the folder that was given, since several files may have the same name."""
    return file.name if file == given else file.relative_to(given).as_posix()


def unreadable(shown: str, form: str, error: object) -> SamplesError:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return SamplesError(f"{shown}: cannot be read as {form} ({first.removesuffix(AGAIN)}){AGAIN}")


def require_columns(table: pd.DataFrame, columns: Iterable[str], shown: str) -> None:
    """AnotherKindError for a table of another kind, or of another version of its publisher."""
    missing = [column for column in columns if column not in table.columns]
    if missing:
        has = ", ".join(map(str, table.columns[:12]))
        raise AnotherKindError(
            f"{shown}: lacks the columns {', '.join(missing)} (it has {has}); it is not the table that its name says"
        )


def require_numbers(table: pd.DataFrame, columns: Iterable[str], shown: str) -> None:
    """SamplesError for shape columns with text or gaps, as in a file that is cut short in the middle of a line."""
    import pandas as pd

    for column in columns:
        values = pd.to_numeric(table[column], errors="coerce")
        bad = values.isna().to_numpy().nonzero()[0]
        if len(bad):
            raise SamplesError(
                f"{shown}: row {bad[0] + 1} has no number in column {column} ({table[column].iloc[bad[0]]!r}); "
                "the file is cut short or damaged: fetch it again, or delete that row"
            )


def numbers_or_nan(values: pd.Series[Any]) -> pd.Series[float]:
    """Times as numbers; anything else becomes NaN, so that the gate quarantines that row alone."""
    import pandas as pd

    return pd.to_numeric(values, errors="coerce").astype(float)


@contextmanager
def as_published(source: str) -> Iterator[None]:
    """SamplesError, in place of what Python raises, for a value that the publisher's own files would not have there."""
    try:
        yield
    except NOT_AS_PUBLISHED as error:
        said = f"{type(error).__name__}: {error}"
        raise SamplesError(
            f"{source}: a value is not as its publisher writes it ({said}); fetch the file again"
        ) from None


def _not_empty(table: pd.DataFrame, shown: str) -> pd.DataFrame:
    if table.empty:
        raise SamplesError(f"{shown}: holds no rows; fetch the file again")
    return table
