"""aiconfigurator-core (PyPI, Apache-2.0): forward kernels and one-node collectives of data-centre GPUs.

Several serving frameworks timed the same operators, in several versions. Rows are taken from the first of vllm, sglang and
trtllm that has the table (`--framework` puts another one first), in its newest version; of NCCL from the newest version.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from sampling.errors import ConfigError, SamplesError
from sampling.files.disk import NotReadError, read_zip_member, zip_members
from sampling.files.faults import counted
from sampling.hardware.cluster import known_hardware
from sampling.importers.aiconfigurator.calls import KINDS, MOE_MODEL, TableKind
from sampling.importers.table import (
    ImportRequest,
    Row,
    Table,
    numbers_or_nan,
    read_parquet,
    require_columns,
    require_numbers,
    unreadable,
)

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
"""A file of a kind, which holds the collections of all frameworks and versions."""


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
        raise SamplesError(unreadable(str(path), "a wheel", error)) from None
    return [_file(name, partial(_member, path, name), f"{path}:{PurePosixPath(name).name}") for name in names]


def _member(path: Path, name: str) -> IO[bytes]:
    try:
        return io.BytesIO(read_zip_member(path, name))
    except NotReadError as error:
        raise SamplesError(unreadable(f"{path}:{name}", "a part of a wheel", error)) from None


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


SOURCE = "aiconfigurator"
PATH = "the wheel, an unpacked tree or exported files; without it the installed aiconfigurator-core"
LICENCE = "Apache-2.0"
FRAMEWORKS = ("vllm", "sglang", "trtllm")
SYSTEMS = {
    "a100_sxm": "a100-80gb",
    "h100_pcie": "h100-pcie",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200",
    "b200_sxm": "b200",
    "b300_sxm": "b300",
    "gb200": "gb200",
    "gb300": "gb300",
    "l40s": "l40s",
}
"""The project's name of a system → the hardware file of its device."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collection:
    """The rows of one table by one framework and version; `content` has the column names of `TableKind.columns`' values."""

    table: str
    framework: str
    version: str
    shown: str
    content: pd.DataFrame


def read(request: ImportRequest) -> list[Table]:
    """One table per kind of work of `request.system`; SamplesError if a file is damaged or none covers that system."""
    files = find(request.path)
    system = _system(request.system, sorted({file.system for file in files}))
    hardware = SYSTEMS[system]
    of_system = [file for file in files if file.system == system]
    if request.framework and request.framework not in FRAMEWORKS:
        raise ConfigError(f"--framework {request.framework}: no such framework; known: {', '.join(FRAMEWORKS)}")
    preferred = tuple(dict.fromkeys((*([request.framework] if request.framework else []), *FRAMEWORKS)))
    chosen = [
        collection
        for table, kind in KINDS.items()
        if (collection := _choose(table, kind, of_system, kind.frameworks or preferred))
    ]
    if not chosen:
        raise SamplesError(f"{request.path}: no table of {system} is one that we know ({', '.join(KINDS)})")
    ungated = _ungated_models(of_system)
    tables = [_table(collection, KINDS[collection.table], system, hardware, ungated) for collection in chosen]
    return [*tables, *_not_mapped(of_system, hardware)]


def _system(wanted: str, there: Sequence[str]) -> str:
    ours = {hardware: system for system, hardware in SYSTEMS.items()}
    system = ours.get(wanted, wanted)
    usable = [name for name in there if name in SYSTEMS]
    if not system and len(usable) == 1:
        return usable[0]
    if system in usable:
        hardware = SYSTEMS[system]
        if hardware not in known_hardware():
            raise ConfigError(
                f"--system {wanted}: configs/hardware has no {hardware}.yml; describe the device there first"
            )
        return system
    said = f"--system {wanted}: no such system" if wanted else "--system: say which system"
    raise ConfigError(f"{said}; known here: {', '.join(usable) or 'none'}")


def _choose(table: str, kind: TableKind, files: Sequence[File], frameworks: Sequence[str]) -> Collection | None:
    packed = [file for file in files if file.table == table]
    for framework in frameworks:
        versions = [file for file in packed if file.framework == framework]
        if versions:
            file = max(versions, key=lambda file: version_key(file.version))
            return _packed_collection(file, kind)
    exported = [file for file in files if file.exported and file.table == kind.export]
    return _exported_collection(table, kind, exported[0], frameworks) if exported else None


def _packed_collection(file: File, kind: TableKind) -> Collection:
    content = file.read()
    needed = [column for column in kind.columns if column not in kind.optional]
    require_columns(content, (*needed, "kernel_source", "latency"), file.shown)
    # latency is in milliseconds
    content = content.assign(time_us=numbers_or_nan(content["latency"]) * 1e3).rename(
        columns={**kind.columns, "kernel_source": "kernel"}
    )
    return Collection(
        table=file.table, framework=file.framework, version=file.version, shown=file.shown, content=content
    )


def _exported_collection(table: str, kind: TableKind, file: File, frameworks: Sequence[str]) -> Collection | None:
    content = file.read()
    by = "backend" if kind.frameworks else "framework"
    require_columns(content, (by, "version", "time_us", *kind.shape, "dtype"), file.shown)
    for framework in frameworks:
        rows = content[content[by] == framework]
        if len(rows):
            version = max(rows["version"].unique(), key=version_key)
            return Collection(
                table=table,
                framework=framework,
                version=version,
                shown=file.shown,
                content=rows[rows["version"] == version],
            )
    return None


def _ungated_models(files: Sequence[File]) -> pd.DataFrame | None:
    """The mixtures whose experts have no gate: one framework names its kernel for them, the others do not say."""
    import pandas as pd

    kind = KINDS["moe_perf"]
    found = []
    for file in files:
        if file.table not in ("moe_perf", kind.export):
            continue
        content = file.read().rename(columns={**kind.columns, "kernel_source": "kernel"})
        require_columns(content, (*MOE_MODEL, "kernel"), file.shown)
        found.append(content[content["kernel"].str.contains("nongated")][list(MOE_MODEL)])
    return pd.concat(found).drop_duplicates() if found else None


def _table(collection: Collection, kind: TableKind, system: str, hardware: str, ungated: pd.DataFrame | None) -> Table:
    content = collection.content
    shape = [column for column in kind.shape if column in content.columns]
    numbers = [column for column in shape if column not in ("distribution", "collective", "dtype", "launch")]
    require_numbers(content, numbers, collection.shown)
    kept, remarks = _leave_out(content, kind)
    kept = kept.assign(kernel=_named_kernel(kept, shape))
    if collection.table == "moe_perf":
        kept = kept.assign(gated=_gated(kept, ungated))
    times_us = numbers_or_nan(kept["time_us"]).tolist()
    calls = kind.calls(kept) if len(kept) else []
    return Table(
        source=SOURCE,
        name=f"{collection.table.removesuffix('_perf')} {collection.framework} {collection.version}",
        slot=collection.table,
        hardware=hardware,
        rows=tuple(Row(call=call, phase="forward", time_us=time) for call, time in zip(calls, times_us, strict=True)),
        provenance={
            "package": DISTRIBUTION,
            "licence": LICENCE,
            "file": collection.shown.rsplit("/", 1)[-1],
            "system": system,
            "framework": collection.framework,
            "version": collection.version,
            "kernels": sorted(map(str, content["kernel"].unique())) if "kernel" in content else [],
        },
        remarks=remarks,
    )


def _leave_out(content: pd.DataFrame, kind: TableKind) -> tuple[pd.DataFrame, tuple[str, ...]]:
    remarks, kept = [], content
    for reason, mask in kind.left_out(content).items():
        aligned = mask.loc[kept.index]
        if aligned.any():
            remarks.append(f"{counted(int(aligned.sum()), 'row')} left out: {reason}")
            kept = kept[~aligned]
    return kept, tuple(remarks)


def _named_kernel(content: pd.DataFrame, shape: Sequence[str]) -> pd.Series[str]:
    """The kernel's name where a shape was timed with several kernels; '' for the most common one, which predictions use."""
    import pandas as pd

    unnamed = pd.Series("", index=content.index, dtype=object)
    if "kernel" not in content or content.empty:
        return unnamed
    named = unnamed
    for _, rows in content.groupby("dtype"):
        counts = rows["kernel"].value_counts()
        shapes = rows.drop_duplicates([*dict.fromkeys((*shape, "kernel"))])
        if len(counts) > 1 and shapes.duplicated(list(shape)).any():
            named_rows = rows["kernel"].where(rows["kernel"] != counts.index[0], "")
            named = named.where(~named.index.isin(rows.index), named_rows)
    return named


def _gated(content: pd.DataFrame, ungated: pd.DataFrame | None) -> list[bool]:
    if ungated is None:
        return [True] * len(content)
    models = set(ungated.itertuples(index=False, name=None))
    return [model not in models for model in content[list(MOE_MODEL)].itertuples(index=False, name=None)]


def _not_mapped(files: Sequence[File], hardware: str) -> list[Table]:
    others: dict[str, int] = {}
    for file in files:
        if not file.exported and file.table not in KINDS:
            others[file.table] = others.get(file.table, 0) + 1
    if not others:
        return []
    names = ", ".join(f"{name} ({count})" for name, count in sorted(others.items()))
    remark = f"{sum(others.values())} tables left out, of work that no call of ours stands for: {names}"
    return [Table(source=SOURCE, name="other tables", hardware=hardware, rows=(), remarks=(remark,))]
