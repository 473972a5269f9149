"""The tables that an importer makes of published files: rows of calls with a time each, and their provenance."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sampling.call import Call, Phase
from sampling.errors import SamplesError
from sampling.files.disk import NotReadError, read_bytes
from sampling.hardware.cluster import device_names, known_hardware
from sampling.store.tables import parquet_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One published time of one phase of a call. `flaw` is a fault that the publisher itself states; '' if none."""

    call: Call
    phase: Phase
    time_us: float
    flaw: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The rows of one published table and direction.

    `hardware` is a name of configs/hardware; `provenance` goes into the manifest; `remarks` say what was left out and why.
    """

    source: str
    name: str
    hardware: str
    rows: tuple[Row, ...]
    slot: str = ""
    """The name under which a later import replaces this table, if it is not `name`: the same for several versions."""
    threads: int = 0
    """CPU threads of the rank that was timed; 0 on a GPU."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def holding(self, rows: tuple[Row, ...] = (), *, remark: str = "") -> Table:
        """The table with these rows alone, and a remark unless it is empty."""
        return replace(self, rows=rows, remarks=(remark,) if remark else ())


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportRequest:
    """The user's request to an importer. An importer needs only what its files do not say themselves."""

    path: Path | None = None
    system: str = ""
    """The device, by the publisher's name or the one in configs/hardware; '' for all that the files hold."""
    framework: str = ""
    collective: str = ""
    """The collective of a log whose header does not name it."""
    ranks_per_node: int = 0
    """GPUs per node of a trace; 0 for what the trace or the hardware file says."""
    threads: int = 0
    """CPU threads of a trace of a CPU; 0 for this machine's cores."""


AGAIN = "; fetch the file again"


class AnotherKindError(SamplesError):
    """A sound file that is not one of its publisher's tables of times."""


NOT_AS_PUBLISHED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError)


def read_parquet(file: Path | IO[bytes], shown: str) -> pd.DataFrame:
    """Read a parquet file; SamplesError, with the file's name as `shown`, if it is empty, cut short or not parquet."""
    try:
        table = parquet_table(file)
    except NotReadError as error:
        raise SamplesError(unreadable(shown, "parquet", error)) from None
    return _not_empty(table, shown)


def read_csv(file: Path) -> pd.DataFrame:
    """Read a CSV file; SamplesError if it is empty or not CSV."""
    import pandas as pd

    try:
        table = pd.read_csv(io.BytesIO(read_bytes(file)))
    except (NotReadError, ValueError) as error:  # EmptyDataError, ParserError and UnicodeDecodeError are ValueErrors
        raise SamplesError(unreadable(str(file), "CSV", error)) from None
    return _not_empty(table, str(file))


def shown_name(file: Path, given: Path) -> str:
    """A file's path below the folder that was given, since several files may have the same name."""
    return file.name if file == given else file.relative_to(given).as_posix()


def unreadable(shown: str, form: str, error: object) -> str:
    """The words for a file that is damaged, or not of the form that its name says."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return f"{shown}: cannot be read as {form} ({first.removesuffix(AGAIN)}){AGAIN}"


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


def hardware_of_device(device: str) -> str:
    """Name of the hardware file of the device that a driver calls `device`; '' if there is none."""
    for hardware in known_hardware():
        if device in device_names(hardware):
            return hardware
    return ""
