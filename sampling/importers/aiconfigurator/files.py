"""Finds aiconfigurator-core's tables: installed (never imported), in its wheel, unpacked in a folder, or exported files.

In the package a table is systems/data/<system>/<family>/<framework>/<version>/<table>.parquet. An exported file,
<system>_<kind>.parquet, holds the collections of all frameworks and versions.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from sampling.errors import SamplesError
from sampling.files.disk import NotReadError, read_zip_member, zip_members
from sampling.importers.table import read_parquet, unreadable

if TYPE_CHECKING:
    import pandas as pd

DISTRIBUTION = "aiconfigurator-core"
VERSION = "0.12.0"
PINNED = f"{DISTRIBUTION}=={VERSION}"
"""Its tables' paths and columns change with each release."""
INSTALL = f"install it with `pip install --no-deps {PINNED}`, or give the path of its wheel"
IN_PACKAGE = re.compile(
    r"(?:.*/)?systems/data/(?P<system>[^/]+)/[^/]+/(?P<framework>[^/]+)/(?P<version>[^/]+)/(?P<table>[^/]+)\.parquet"
)
EXPORTED = re.compile(
    r"(?:.*/)?(?P<system>\w+)_(?P<kind>gemm|attention_decode|attention|moe|custom_allreduce|nccl)\.parquet"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    """One table of the package, or one exported file, where `framework` and `version` are '' and `table` is the kind."""

    system: str
    framework: str
    version: str
    table: str
    shown: str
    read: Callable[[], pd.DataFrame]

    @property
    def exported(self) -> bool:
        return not self.framework


def find(path: Path | None) -> list[File]:
    """Every table at `path`, or of the installed package; SamplesError where there is none."""
    if path is None:
        return _found(_folder(_installed()), f"the installed {DISTRIBUTION}")
    if not path.exists():
        raise SamplesError(f"{path}: no such file or folder; {INSTALL}")
    if path.is_dir():
        return _found(_folder(path), str(path))
    if path.suffix == ".whl":
        return _found(_wheel(path), str(path))
    return _found([_file(path.as_posix(), path, str(path))], str(path))


def _found(files: Iterable[File | None], shown: str) -> list[File]:
    known = [file for file in files if file is not None]
    if not known:
        raise SamplesError(f"{shown}: holds no table of {DISTRIBUTION} {VERSION} (systems/data/…/*.parquet); {INSTALL}")
    return known


def _installed() -> Path:
    try:
        return Path(str(distribution(DISTRIBUTION).locate_file("aiconfigurator_core")))
    except PackageNotFoundError:
        raise SamplesError(f"{DISTRIBUTION} is not installed; {INSTALL}") from None


def _folder(folder: Path) -> list[File | None]:
    # absolute, since the path of a folder inside the tree names the system
    files = sorted(folder.absolute().glob("**/*.parquet"))
    return [_file(file.as_posix(), file, str(file)) for file in files]


def _wheel(path: Path) -> list[File | None]:
    try:
        names = [name for name in zip_members(path) if name.endswith(".parquet")]
    except NotReadError as error:
        raise unreadable(str(path), "a wheel", error) from None
    return [_file(name, partial(_member, path, name), f"{path}:{PurePosixPath(name).name}") for name in names]


def _member(path: Path, name: str) -> IO[bytes]:
    try:
        return io.BytesIO(read_zip_member(path, name))
    except NotReadError as error:
        raise unreadable(f"{path}:{name}", "a part of a wheel", error) from None


def _file(name: str, source: Path | Callable[[], IO[bytes]], shown: str) -> File | None:
    def read() -> pd.DataFrame:
        return read_parquet(source if isinstance(source, Path) else source(), shown)

    if match := IN_PACKAGE.fullmatch(name):
        return File(**match.groupdict(), shown=shown, read=read)
    if match := EXPORTED.fullmatch(name):
        return File(system=match["system"], framework="", version="", table=match["kind"], shown=shown, read=read)
    return None


def version_key(version: str) -> tuple[tuple[int, int], ...]:
    """A sort key: 0.5.14 comes after 0.5.6.post2, and 1.3.0 after 1.3.0rc20."""
    parts = re.findall(r"\d+|[a-z]+", version)
    return (*((1, int(part)) if part.isdigit() else (0 if part == "post" else -1, 0) for part in parts), (0, 0))
