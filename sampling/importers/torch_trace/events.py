"""A torch profiler trace as a forest of CPU operators, each with the time of the device's kernels that it launched."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from sampling.errors import UserError
from sampling.files.disk import NotReadError
from sampling.importers.table import unreadable
from sampling.importers.torch_trace.stream import EVENTS, stream_trace

BACKWARD = "autograd::engine::evaluate_function: "
"""Prefix of the operator that runs an autograd node; the node's name follows."""
KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver")
ANNOTATION = "user_annotation"
"""Category of the spans that a program or a library names, such as ProfilerStep#3 and gloo:all_reduce."""
MOST_BYTES = 4_000_000_000
"""Largest trace that is read, unpacked, piece by piece."""
MOST_EVENTS = 5_000_000
"""Most operators, kernels, launches and named spans that are kept of a trace: about 4 GB."""
ARGUMENTS = frozenset(
    (
        *("Input Dims", "Input type", "Concrete Inputs", "Sequence number", "Fwd thread id", "External id"),
        *("correlation", "stream", "Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype"),
        *("Process Group Ranks", "Process Group Name", "Process Group Description", "graph node id"),
    )
)
"""Arguments of events that are kept."""
FACTS = "steptime"
"""Key of a trace's header under which `predict measure --trace` writes facts of its run."""
NAMES = 4096
"""Names of operators whose short forms are kept: a trace has some hundred."""
RECORD = "record it with torch.profiler.profile(record_shapes=True) and export_chrome_trace"


@dataclass(slots=True, eq=False)
class Op:
    """One run of an operator on the CPU; `kernels_us` is the time of the kernels that it launched itself."""

    name: str
    start_us: float
    duration_us: float
    arguments: Mapping[str, Any]
    parent: Op | None = None
    kernels_us: float = 0.0
    thread: Any = None
    """Process and thread that ran it."""

    @property
    def end_us(self) -> float:
        return self.start_us + self.duration_us

    @property
    def dims(self) -> list[Any]:
        return list(self.arguments.get("Input Dims", ()))

    @property
    def types(self) -> list[str]:
        return list(self.arguments.get("Input type", ()))

    @property
    def concrete(self) -> list[str]:
        return list(self.arguments.get("Concrete Inputs", ()))

    @property
    def node(self) -> str:
        """The autograd node that this operator runs; '' for a forward operator, and for a checkpoint, which runs several."""
        return _node_of(self.name)


@lru_cache(NAMES)
def _node_of(name: str) -> str:
    node = name.removeprefix(BACKWARD) if name.startswith(BACKWARD) else ""
    return "" if "Checkpoint" in node else node


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    duration_us: float
    arguments: Mapping[str, Any]
    op: Op | None
    """The operator that launched it; None if the trace does not say."""
    start_us: float = 0.0
    launched_us: float | None = None
    """Start of the call that launched it; None if the trace does not say."""
    stream: Any = None


@dataclass(frozen=True, slots=True)
class Span:
    """A named stretch of time that a program or a library recorded; one of an asynchronous collective may overlap any other."""

    name: str
    start_us: float
    duration_us: float
    thread: Any
    arguments: Mapping[str, Any]

    @property
    def end_us(self) -> float:
        return self.start_us + self.duration_us


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace; in `ops`, parents come before their children."""

    ops: list[Op]
    kernels: list[Kernel]
    devices: list[str] = field(default_factory=list)
    world_size: int = 1
    spans: list[Span] = field(default_factory=list)
    rank: int | None = None
    """The rank that recorded it; None if the trace does not say."""
    header: Mapping[str, Any] = field(default_factory=dict)
    """The keys of the file besides its events."""


def load_trace(path: Path, *, with_shapes: bool = True) -> Trace:
    """Read a .json or .json.gz; UserError for another file, and, where shapes are asked for, for a trace without them."""
    with without_collections():
        return _load(path, with_shapes=with_shapes)


@contextmanager
def without_collections() -> Iterator[None]:
    """No garbage collection within it: collections visit all that is kept of a trace time and again, and none of it is garbage."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def _load(path: Path, *, with_shapes: bool) -> Trace:
    header: dict[str, Any] = {}
    try:
        events = [_slim(event) for event in stream_trace(path, most_bytes=MOST_BYTES, header=header) if _is_kept(event)]
    except (NotReadError, ValueError, RecursionError) as error:
        raise UserError(unreadable(str(path), "a trace", error)) from None
    if EVENTS not in header:
        raise UserError(f"{path}: has no traceEvents, so it is not a trace of torch's profiler; {RECORD}")
    if not events:
        raise UserError(f"{path}: is empty: it holds no operators or kernels; {RECORD}")
    if len(events) > MOST_EVENTS:
        raise UserError(f"{path}: holds {len(events):,} events, more than {MOST_EVENTS:,}; record fewer steps")
    try:
        trace = _trace(header, events)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: an event is not as torch's profiler writes them ({error!r}); {RECORD}") from None
    if with_shapes and not any(op.dims for op in trace.ops):
        raise UserError(f"{path}: its operators have no shapes; {RECORD}")
    return trace


KEPT = frozenset(("cpu_op", ANNOTATION, *KERNELS, *LAUNCHES))


def _is_kept(event: Any) -> bool:
    return isinstance(event, dict) and event.get("ph") == "X" and event.get("cat") in KEPT


def _slim(event: dict[str, Any]) -> dict[str, Any]:
    """The event with the arguments that are used; names and types are few, and are kept once."""
    name, arguments = event.get("name"), event.get("args")
    if isinstance(name, str):
        event["name"] = sys.intern(name)
    if isinstance(arguments, dict):
        kept = {key: value for key, value in arguments.items() if key in ARGUMENTS}
        if isinstance(types := kept.get("Input type"), list):
            kept["Input type"] = [sys.intern(each) if isinstance(each, str) else each for each in types[:1]]
        if "attention" not in str(name):
            kept.pop("Concrete Inputs", None)
        event["args"] = kept
    return event


def _trace(header: Mapping[str, Any], events: Sequence[dict[str, Any]]) -> Trace:
    ops, launches = _nest(event for event in events if event["cat"] in ("cpu_op", *LAUNCHES))
    by_external = {op.arguments["External id"]: op for op in ops if "External id" in op.arguments}
    kernels = [_kernel(event, by_external, launches) for event in events if event["cat"] in KERNELS]
    for kernel in kernels:
        if kernel.op is not None:
            kernel.op.kernels_us += kernel.duration_us
    spans = [
        Span(str(each["name"]), float(each["ts"]), float(each.get("dur", 0)), _thread(each), each.get("args", {}))
        for each in events
        if each["cat"] == ANNOTATION
    ]
    devices = [str(device.get("name", "")) for device in header.get("deviceProperties") or ()]
    distributed = header.get("distributedInfo") or {}
    world, rank = int(distributed.get("world_size", 1)), distributed.get("rank")
    return Trace(ops, kernels, devices, world, spans, None if rank is None else int(rank), header)


def _kernel(
    event: Mapping[str, Any], by_external: Mapping[Any, Op], launches: Mapping[Any, tuple[Op | None, float]]
) -> Kernel:
    arguments = event.get("args", {})
    launching, launched_us = launches.get(arguments.get("correlation"), (None, None))
    return Kernel(
        name=str(event["name"]),
        duration_us=float(event["dur"]),
        arguments=arguments,
        op=by_external.get(arguments.get("External id")) or launching,
        start_us=float(event["ts"]),
        launched_us=launched_us,
        stream=arguments.get("stream", event.get("tid")),
    )


def _thread(event: Mapping[str, Any]) -> Any:
    return event.get("pid"), event.get("tid")


def _nest(events: Iterable[Mapping[str, Any]]) -> tuple[list[Op], dict[Any, tuple[Op | None, float]]]:
    """The operators, each below the one that was running in its thread, and correlation id → the operator that launched, and when."""
    ops: list[Op] = []
    launches: dict[Any, tuple[Op | None, float]] = {}
    running: dict[Any, list[Op]] = {}
    for event in sorted(events, key=lambda event: (event["ts"], -event.get("dur", 0))):
        thread = _thread(event)
        stack = running.setdefault(thread, [])
        start_us = float(event["ts"])
        while stack and stack[-1].end_us <= start_us:
            stack.pop()
        parent = stack[-1] if stack else None
        if event["cat"] in LAUNCHES:
            launches[event.get("args", {}).get("correlation")] = parent, start_us
            continue
        op = Op(str(event["name"]), start_us, float(event.get("dur", 0)), event.get("args", {}), parent, thread=thread)
        ops.append(op)
        stack.append(op)
    return ops, launches


@lru_cache(NAMES)
def plain_name(name: str) -> str:
    """The name that an operator and its autograd node share, for example aten::_log_softmax and LogSoftmaxBackward0."""
    return re.sub(r"Backward\d*$", "", name.removeprefix("aten::")).replace("_", "").lower()
