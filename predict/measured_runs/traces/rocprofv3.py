"""Traces of rocprofv3: its CSV of kernels (`*_kernel_trace.csv`, with the copies of `*_memory_copy_trace.csv` beside it), its JSON
(`*_results.json`) and its Perfetto file (`*_results.pftrace`). Each agent of a file is a rank.

Source: the documentation of rocprofiler-sdk (`--output-format csv json pftrace`; ns), protos/perfetto/trace of github.com/google/perfetto.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from predict.measured_runs.traces.perfetto import slices_in
from sampling.errors import UserError
from sampling.files.disk import NotReadError, read_unzipped
from sampling.importers.torch_trace.events import Kernel, Trace

PROFILER = "rocprofv3"
JSON, CSV, PERFETTO = "_results.json", "_trace.csv", ".pftrace"
SUFFIXES = (JSON, CSV, PERFETTO)
KERNELS, COPIES = "_kernel_trace.csv", "_memory_copy_trace.csv"
TOOL = "rocprofiler-sdk-tool"
DISPATCH = "KERNEL_DISPATCH"
OF_KERNELS = ("kernel_dispatch", "memory_copy")
"""Categories of slices of a Perfetto file that are a device's."""


def read(path: Path) -> Sequence[Trace] | None:
    if path.name.endswith(COPIES) and path.with_name(path.name.replace(COPIES, KERNELS)).is_file():
        return []  # read with the kernels beside it
    try:
        if path.suffix == ".csv":
            return _of_csv(path)
        return _of_perfetto(path) if path.suffix == PERFETTO else _of_json(path)
    except (NotReadError, csv.Error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{path}: is not as rocprofv3 writes it ({error}); record it with rocprofv3 --kernel-trace --output-format csv"
        ) from None


Found = tuple[Any, Kernel]
"""A kernel with its agent."""


def _ranks(found: Iterable[Found]) -> list[Trace]:
    by_agent: dict[Any, list[Kernel]] = {}
    for agent, kernel in found:
        by_agent.setdefault(agent, []).append(kernel)
    return [
        Trace(ops=[], kernels=sorted(kernels, key=lambda each: each.start_us), world_size=len(by_agent), rank=rank)
        for rank, (_, kernels) in enumerate(sorted(by_agent.items(), key=lambda each: str(each[0])))
    ]


def _kernel(name: str, start_ns: int, end_ns: int, stream: Any) -> Kernel:
    return Kernel(
        name=name, duration_us=(end_ns - start_ns) / 1e3, arguments={}, op=None, start_us=start_ns / 1e3, stream=stream
    )


def _of_csv(path: Path) -> list[Trace] | None:
    rows = _csv_rows(path)
    if not rows or "Start_Timestamp" not in rows[0]:
        return None
    found = [
        (row.get("Agent_Id"), _of_row(row["Kernel_Name"], row, row.get("Queue_Id")))
        for row in rows
        if row["Kind"] == DISPATCH
    ]
    beside = path.with_name(path.name.replace(KERNELS, COPIES))
    if beside != path and beside.is_file():
        found += [*_copies(_csv_rows(beside))]
    return _ranks(found)


def _copies(rows: Iterable[Mapping[str, str]]) -> Iterator[Found]:
    """Copies by the agent that has them: the one that is not the host's."""
    for row in rows:
        direction = row.get("Direction", "")
        agent = row.get("Source_Agent_Id" if direction.endswith("TO_HOST") else "Destination_Agent_Id")
        yield agent, _of_row(f"Memcpy {direction}", row, "copies")


def _of_row(name: str, row: Mapping[str, str], stream: Any) -> Kernel:
    return _kernel(name, int(row["Start_Timestamp"]), int(row["End_Timestamp"]), stream)


def _csv_rows(path: Path) -> list[dict[str, str]]:
    return [*csv.DictReader(read_unzipped(path).decode("utf-8", errors="replace").splitlines())]


def _of_json(path: Path) -> list[Trace] | None:
    tools = json.loads(read_unzipped(path)).get(TOOL)
    if tools is None:
        return None
    return _ranks(each for tool in tools for each in _of_tool(tool))


def _of_tool(tool: Mapping[str, Any]) -> Iterator[Found]:
    names = {
        each["kernel_id"]: each.get("formatted_kernel_name") or each["kernel_name"] for each in tool["kernel_symbols"]
    }
    records = tool["buffer_records"]
    for each in records.get("kernel_dispatch", ()):
        about = each["dispatch_info"]
        kernel = _kernel(
            names[about["kernel_id"]], each["start_timestamp"], each["end_timestamp"], _handle(about.get("queue_id"))
        )
        yield _handle(about.get("agent_id")), kernel
    for each in records.get("memory_copy", ()):
        yield (
            _handle(each.get("dst_agent_id")),
            _kernel("Memcpy", each["start_timestamp"], each["end_timestamp"], "copies"),
        )


def _handle(value: Any) -> Any:
    return value.get("handle") if isinstance(value, dict) else value


def _of_perfetto(path: Path) -> list[Trace]:
    slices = [each for each in slices_in(path) if each.category in OF_KERNELS]
    if not slices:
        raise ValueError("no slice is a kernel's")
    return _ranks((_agent(each.track), _kernel(each.name, each.start_ns, each.end_ns, each.track)) for each in slices)


def _agent(track: str) -> str:
    """The agent in the name of a track, such as `COMPUTE AGENT [4] QUEUE [1] (GPU)`."""
    found = re.search(r"AGENT \[(\d+)\]", track)
    return found[1] if found else ""
