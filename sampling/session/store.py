"""The sample store: one parquet file a call name, one manifest a profile, and a journal that survives interruption.

    data/samples/<profile>/manifest.json      which device, which sessions (versions, date, commit, timer settings)
    data/samples/<profile>/<call>.parquet     fields of the call, then phase, threads, busy_ranks, times, quarantine
    data/samples/<profile>/journal.jsonl      rows of a session not yet folded into the parquet files

Rows hold fields and times, never features, so a new feature needs a retrain and never a resample.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampling.call import Call, Phase, State
from sampling.catalogue import make_call
from sampling.errors import ConfigError, SamplesError

if TYPE_CHECKING:
    import pandas as pd

DATA = Path(__file__).resolve().parents[2] / "data"
IMPORTED = "imported"
"""Beside samples/ and regressors/, other people's measurements and what is learnt from them: never in the repository."""
MANIFEST_VERSION = 1
MEASUREMENT_COLUMNS = (
    "phase",
    "threads",
    "busy_ranks",
    "time_us",
    "low_us",
    "high_us",
    "repeats",
    "quarantine",
    "session",
    "origin",
    "state",
    "clock_mhz",
    "power_w",
    "launch_us",
)
DEFAULTS: Mapping[str, Any] = {"origin": "", "state": "burst", "clock_mhz": None, "power_w": None, "launch_us": None}
"""What the rows of a file hold that is older than the column."""
MAY_BE_UNKNOWN = ("clock_mhz", "power_w", "launch_us")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One timed phase of a call, taken while `busy_ranks` ranks of `threads` threads ran on the node.

    `low_us` and `high_us` are the 10th and 90th percentile of the repeats. `quarantine` says why the row must not be learnt from; empty for a good row.
    """

    call: Call
    phase: Phase
    threads: int
    busy_ranks: int
    time_us: float
    low_us: float
    high_us: float
    repeats: int
    quarantine: str
    session: int
    origin: str = ""
    """Empty for a row of our own sampler, `imported` for a published one, `filled: …` for a phase that nobody timed."""
    state: State = "burst"
    """`burst`: each repeat on a rested device; `sustained`: after a second of nothing else, at the clock that power allows."""
    clock_mhz: float | None = None
    """Of the multiprocessors, at the end of the timing; None where the device does not say."""
    power_w: float | None = None
    launch_us: float | None = None
    """What the host adds to a call that it launches kernel by kernel: its time less that of a replayed graph; None where
    no graph could be captured."""

    @property
    def key(self) -> tuple[Call, Phase, int, int, State]:
        return self.call, self.phase, self.threads, self.busy_ranks, self.state

    def as_row(self) -> dict[str, Any]:
        measured = {name: getattr(self, name) for name in MEASUREMENT_COLUMNS}
        return {"call": self.call.NAME, "fields": self.call.fields(), **measured}


def sample_from_row(row: Mapping[str, Any]) -> Sample:
    """The inverse of `Sample.as_row`."""
    measured = {name: row[name] if name in row else DEFAULTS[name] for name in MEASUREMENT_COLUMNS}
    return Sample(call=make_call(row["call"], row["fields"]), **measured)


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """Provenance of a profile. `device` identifies the machine; each session adds its versions and settings."""

    profile: str
    hardware: str
    device: dict[str, Any]
    sessions: list[dict[str, Any]] = field(default_factory=list)
    version: int = MANIFEST_VERSION

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def samples_directory(profile: str, data: Path = DATA) -> Path:
    """ConfigError for a name that would lie elsewhere."""
    if not re.fullmatch(r"[\w.-]*\w[\w.-]*", profile):
        raise ConfigError(f"profile: {profile!r} is no name of a folder; use letters, digits, dots and dashes")
    return data / "samples" / profile


def home_of(profile: str, data: Path = DATA) -> Path:
    """The folder of samples/ and regressors/ that knows the profile: ours, or else that of what was imported."""
    imported = data / IMPORTED
    own, other = (
        any((home / kind / profile).is_dir() for kind in ("samples", "regressors")) for home in (data, imported)
    )
    return imported if other and not own else data


def read_manifest(directory: Path) -> Manifest:
    """Read `manifest.json`; SamplesError names the directory and the command that makes it."""
    path = directory / "manifest.json"
    try:
        return _manifest(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise SamplesError(f"{directory}: no samples; run `make sample PROFILE={directory.name}`") from None
    except (OSError, ValueError, TypeError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise SamplesError(
            f"{path}: not a manifest of version {MANIFEST_VERSION} ({error}); restore the file, or set the directory "
            f"aside and run `make sample PROFILE={directory.name}`"
        ) from None


def _manifest(content: Any) -> Manifest:
    """Raises TypeError or ValueError for what is none of this version."""
    manifest = Manifest(**content)
    if manifest.version != MANIFEST_VERSION:
        raise ValueError(f"its version is {manifest.version}")
    if not isinstance(manifest.device, dict) or not isinstance(manifest.sessions, list):
        raise TypeError("device must be a mapping and sessions a list")
    return manifest


def write_manifest(directory: Path, manifest: Manifest) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / "manifest.json", json.dumps(manifest.as_dict(), indent=1).encode())


def read_samples(directory: Path, names: Collection[str] | None = None) -> dict[str, pd.DataFrame]:
    """Every row of a profile, or of these calls of it, quarantined ones included: call name → table.

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
            raise SamplesError(f"{path}: lacks the columns {missing}; it is no sample table of this version")
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


def append_to_journal(directory: Path, sample: Sample) -> None:
    """Write one row so that it survives whatever happens next."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps(sample.as_row()) + "\n")


def fold_journal(directory: Path) -> int:
    """Move the journal's rows into the parquet files; returns how many.

    A row cut short by a kill is left out. A quarantined row gives way to a newer row of the same key. Whenever it is
    interrupted, folding again leaves every row once.
    """
    journal = directory / "journal.jsonl"
    if not journal.is_file():
        return 0
    rows = list(_complete_rows(journal.read_text().splitlines()))
    by_name: dict[str, list[Sample]] = {}
    for row in rows:
        sample = sample_from_row(row)
        by_name.setdefault(sample.call.NAME, []).append(sample)
    tables = read_samples(directory)
    for name, new in by_name.items():
        old = list(iterate_samples({name: tables[name]})) if name in tables else []
        _write_table(directory / f"{name}.parquet", _merge(old, new))
    journal.unlink()
    return len(rows)


def _complete_rows(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def _merge(old: list[Sample], new: list[Sample]) -> list[Sample]:
    """The rows of a table and of the journal; those of the journal that an interrupted fold already brought in, once."""
    renewed, folded = {sample.key for sample in new}, set(new)
    kept = [sample for sample in old if sample not in folded and not (sample.quarantine and sample.key in renewed)]
    return kept + new


def write_table(directory: Path, name: str, samples: Sequence[Sample]) -> None:
    """Put these rows, all of a call name, in the place of those that the profile holds."""
    _write_table(directory / f"{name}.parquet", samples)


def _write_table(path: Path, samples: Sequence[Sample]) -> None:
    import pandas as pd

    rows = [
        {**sample.call.fields(), **{name: getattr(sample, name) for name in MEASUREMENT_COLUMNS}} for sample in samples
    ]
    with replacing(path) as temporary:
        pd.DataFrame(rows).to_parquet(temporary, index=False, compression="zstd")


def write_atomically(path: Path, content: bytes) -> None:
    """Write the whole file or nothing of it."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path`, nobody else's, to be written in the block; it takes the place of `path` at the block's end.

    If the block fails, nothing of it is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
