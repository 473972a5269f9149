"""Traces of Nsight Systems, exported with `nsys export --type sqlite`.

Source: the schema in Nsight Systems' user guide: CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY and _MEMSET (ns), CUPTI_ACTIVITY_KIND_RUNTIME with the
launches, StringIds, NVTX_EVENTS with the ranges of a program, TARGET_INFO_GPU. A file may have several devices and processes: each pair is
a rank, with the launches and ranges of its own process, since each counts its launches by itself. nsys knows no shapes.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from sampling.errors import UserError
from sampling.files.disk import NotReadError, require_regular
from sampling.importers.torch_trace.events import MOST_EVENTS, Kernel, Span, Trace

PROFILER = "Nsight Systems"
SUFFIXES = (".sqlite",)
COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
"""`copyKind` of a copy → its direction (CUpti_ActivityMemcpyKind)."""
NVTX_RANGE = 59
"""`eventType` of a push and pop range (NvtxPushPopRange)."""
OF_THREAD = 24
"""Low bits of a `globalTid` or `globalPid` that number the thread, above which both have the process."""
Key = tuple[int, int]
"""Process and device."""
Launches = dict[tuple[int, int], int]
"""Process and correlation → start of the launch in ns."""


def read(path: Path) -> Sequence[Trace] | None:
    try:
        require_regular(path)
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            tables = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}
            if not any(name.startswith("CUPTI_ACTIVITY_KIND_") for name in tables):
                return None
            return _traces(database, tables, path)
    except (sqlite3.Error, NotReadError) as error:
        raise UserError(
            f"{path}: cannot be read as an export of Nsight Systems ({error}); write it with nsys export --type sqlite"
        ) from None


def _traces(database: sqlite3.Connection, tables: set[str], path: Path) -> list[Trace]:
    names = dict(_rows(database, tables, "StringIds", "id, value"))
    calls = _rows(database, tables, "CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid, correlationId, start")
    launches = {(_process(thread), correlation): start for thread, correlation, start in calls}
    devices = dict(_rows(database, tables, "TARGET_INFO_GPU", "id, name"))
    kernels: dict[Key, list[Kernel]] = {}
    for key, kernel in _activities(database, tables, names, launches):
        kernels.setdefault(key, []).append(kernel)
    if sum(map(len, kernels.values())) > MOST_EVENTS:
        raise UserError(f"{path}: holds more than {MOST_EVENTS:,} kernels; record fewer steps")
    spans = [*_spans(database, tables, names)]
    return [
        Trace(
            ops=[],
            kernels=sorted(of_rank, key=lambda each: each.start_us),
            devices=[str(devices[device])] if device in devices else [],
            world_size=len(kernels),
            spans=[span for process_of_span, span in spans if process_of_span == process],
            rank=rank,
        )
        for rank, ((process, device), of_rank) in enumerate(sorted(kernels.items()))
    ]


def _activities(
    database: sqlite3.Connection, tables: set[str], names: dict[int, str], launches: Launches
) -> Iterator[tuple[Key, Kernel]]:
    columns = "start, end, deviceId, streamId, correlationId, globalPid"
    of_kernels = _rows(database, tables, "CUPTI_ACTIVITY_KIND_KERNEL", f"{columns}, demangledName")
    yield from (_kernel(row[:6], names.get(row[6], "unknown"), launches) for row in of_kernels)
    of_copies = _rows(database, tables, "CUPTI_ACTIVITY_KIND_MEMCPY", f"{columns}, copyKind")
    yield from (_kernel(row[:6], f"Memcpy {COPIES.get(row[6], '')}", launches) for row in of_copies)
    of_fills = _rows(database, tables, "CUPTI_ACTIVITY_KIND_MEMSET", columns)
    yield from (_kernel(row, "Memset", launches) for row in of_fills)


def _kernel(row: Sequence[Any], name: str, launches: Launches) -> tuple[Key, Kernel]:
    start_ns, end_ns, device, stream, correlation, process = row
    launched_ns = launches.get((_process(process), correlation))
    kernel = Kernel(
        name=name,
        duration_us=(end_ns - start_ns) / 1e3,
        arguments={},
        op=None,
        start_us=start_ns / 1e3,
        launched_us=None if launched_ns is None else launched_ns / 1e3,
        stream=stream,
    )
    return (_process(process), device or 0), kernel


def _process(global_id: int | None) -> int:
    return (global_id or 0) >> OF_THREAD


def _spans(database: sqlite3.Connection, tables: set[str], names: dict[int, str]) -> Iterator[tuple[int, Span]]:
    """The ranges that programs marked, each with its process."""
    for start, end, text, number, thread, kind in _rows(
        database, tables, "NVTX_EVENTS", "start, end, text, textId, globalTid, eventType"
    ):
        name = text or names.get(number, "")
        if kind == NVTX_RANGE and name and end is not None:
            yield _process(thread), Span(str(name), start / 1e3, (end - start) / 1e3, thread, {})


def _rows(database: sqlite3.Connection, tables: set[str], table: str, columns: str) -> Iterable[Any]:
    """The rows of a table; none where nsys recorded nothing of the kind."""
    return database.execute(f"select {columns} from {table}") if table in tables else ()
