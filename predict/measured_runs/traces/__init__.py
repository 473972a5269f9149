"""Traces of a device's kernels, whatever profiler wrote them, as the `Trace` of each rank. A format is a module of this folder with

- `PROFILER`, the name of what writes it,
- `SUFFIXES`, the endings of its files,
- `read(path)`, one trace for each device in the file, or None for a file of another profiler.

Traces of torch's profiler are read by `sampling.importers.torch_trace`.
"""

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sampling.additions import add, modules_of
from sampling.errors import UserError
from sampling.files.disk import GZIP, NotReadError, require_regular
from sampling.importers.torch_trace import PATTERNS, trace_files
from sampling.importers.torch_trace.events import RECORD, Trace, load_trace


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceFormat:
    suffixes: tuple[str, ...]
    read: Callable[[Path], Sequence[Trace] | None]


def trace_formats() -> dict[str, TraceFormat]:
    """Every format apart from torch's by the name of its profiler."""
    found: dict[str, TraceFormat] = {}
    for module in modules_of(__name__):
        if hasattr(module, "PROFILER"):
            known = TraceFormat(suffixes=module.SUFFIXES, read=module.read)
            add(found, module.PROFILER, known, "formats of traces")
    return found


CAPTURES = "capture_traces"
"""Folder beside a trace of replayed graphs with the traces of their capture, which alone have shapes, and are no ranks."""


def files_of_traces(path: Path) -> list[Path]:
    """The traces at a path, which is one or a folder of them, in order. UserError where there is no such path, or none in it."""
    suffixes = (suffix for each in trace_formats().values() for suffix in each.suffixes)
    files = trace_files(path, patterns=(*PATTERNS, *(f"**/*{suffix}" for suffix in suffixes)))
    return [file for file in files if CAPTURES not in file.relative_to(path).parts]


TORCH = re.compile(rb'^\s*\{.*?"(?:traceEvents|schemaVersion|deviceProperties)"\s*:', re.DOTALL)
"""How a file of torch's profiler begins, and no log in JSON."""
BEGINNING = 1 << 16
"""Bytes of a file by which it is known."""


def is_trace(path: Path) -> bool:
    """Whether a path is a trace or a folder, rather than a log."""
    if path.is_dir():
        return True
    if any(path.name.endswith(suffix) for each in trace_formats().values() for suffix in each.suffixes):
        return path.is_file()
    return path.name.endswith((".json", ".json.gz")) and bool(TORCH.match(_beginning(path)))


def _beginning(path: Path) -> bytes:
    try:
        require_regular(path)
        with path.open("rb") as file:
            raw = file.read(BEGINNING)
        unzipped = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        return unzipped.decompress(raw, BEGINNING) if raw.startswith(GZIP) else raw
    except (OSError, NotReadError, zlib.error):
        return b""


def traces_in(file: Path) -> Sequence[Trace]:
    """The traces of a file, one for each device. UserError for a file of no known profiler, or one that is damaged."""
    if not file.stat().st_size:
        raise UserError(f"{file}: is empty; {RECORD}")
    for each in trace_formats().values():
        if file.name.endswith(each.suffixes) and (found := each.read(file)) is not None:
            return found
    if file.name.endswith((".json", ".json.gz")):
        return [load_trace(file, with_shapes=False)]
    known = ", ".join(("torch.profiler", *trace_formats()))
    raise UserError(f"{file}: is not a trace of {known}; {RECORD}")
