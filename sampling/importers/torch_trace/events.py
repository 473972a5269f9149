"""A torch profiler trace as a forest of CPU operators, each with the time of the device's kernels that it launched."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sampling.errors import SamplesError
from sampling.files.regular import NotReadError, read_unzipped
from sampling.importers.reading import unreadable

BACKWARD = "autograd::engine::evaluate_function: "
"""Prefix of the operator that runs an autograd node; the node's name follows."""
KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver")
MOST_BYTES = 500_000_000
"""Largest trace that is read, unpacked; one takes ten times its size in memory."""
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
        name = self.name.removeprefix(BACKWARD) if self.name.startswith(BACKWARD) else ""
        return "" if "Checkpoint" in name else name


@dataclass(frozen=True, slots=True)
class Kernel:
    name: str
    duration_us: float
    arguments: Mapping[str, Any]
    op: Op | None
    """The operator that launched it; None if the trace does not say."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace; in `ops`, parents come before their children."""

    ops: list[Op]
    kernels: list[Kernel]
    devices: list[str] = field(default_factory=list)
    world_size: int = 1


def load_trace(path: Path) -> Trace:
    """Read a .json or .json.gz; SamplesError for another file, and for a trace without shapes."""
    try:
        content = json.loads(read_unzipped(path, most_bytes=MOST_BYTES))
    except (NotReadError, ValueError, RecursionError) as error:
        raise unreadable(str(path), "a trace", error) from None
    events = content.get("traceEvents") if isinstance(content, dict) else None
    if not isinstance(events, list):
        raise SamplesError(f"{path}: has no traceEvents, so it is not a trace of torch's profiler; {RECORD}")
    try:
        return _trace(content, [event for event in events if isinstance(event, dict) and event.get("ph") == "X"], path)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SamplesError(f"{path}: an event is not as torch's profiler writes them ({error!r}); {RECORD}") from None


def _trace(content: Mapping[str, Any], events: list[dict[str, Any]], path: Path) -> Trace:
    ops, launches = _nest(event for event in events if event.get("cat") in ("cpu_op", *LAUNCHES))
    if not any(op.dims for op in ops):
        raise SamplesError(f"{path}: its operators have no shapes; {RECORD}")
    by_external = {op.arguments["External id"]: op for op in ops if "External id" in op.arguments}
    kernels = []
    for event in events:
        if event.get("cat") in KERNELS:
            arguments = event.get("args", {})
            op = by_external.get(arguments.get("External id")) or launches.get(arguments.get("correlation"))
            kernel = Kernel(str(event["name"]), float(event["dur"]), arguments, op)
            kernels.append(kernel)
            if op is not None:
                op.kernels_us += kernel.duration_us
    devices = [str(device.get("name", "")) for device in content.get("deviceProperties") or ()]
    world = (content.get("distributedInfo") or {}).get("world_size", 1)
    return Trace(ops, kernels, devices, int(world))


def _nest(events: Iterable[Mapping[str, Any]]) -> tuple[list[Op], dict[Any, Op]]:
    """The operators, each below the one that was running in its thread, and correlation id → the operator that launched."""
    ops: list[Op] = []
    launches: dict[Any, Op] = {}
    running: dict[Any, list[Op]] = {}
    for event in sorted(events, key=lambda event: (event["ts"], -event.get("dur", 0))):
        stack = running.setdefault((event.get("pid"), event.get("tid")), [])
        start_us = float(event["ts"])
        while stack and stack[-1].start_us + stack[-1].duration_us <= start_us:
            stack.pop()
        parent = stack[-1] if stack else None
        if event["cat"] in LAUNCHES:
            if parent is not None:
                launches[event.get("args", {}).get("correlation")] = parent
            continue
        op = Op(str(event["name"]), start_us, float(event.get("dur", 0)), event.get("args", {}), parent)
        ops.append(op)
        stack.append(op)
    return ops, launches


def plain_name(name: str) -> str:
    """The name that an operator and its autograd node share, for example aten::_log_softmax and LogSoftmaxBackward0."""
    return re.sub(r"Backward\d*$", "", name.removeprefix("aten::")).replace("_", "").lower()
