"""Chrome traces of torch's profiler: kernel times of a run that the user already has.

Each operator that is one of our calls gets the time of its kernels; in a trace without a device, its own duration. The
backward of a call consists of the autograd nodes that its forward created, found by their sequence numbers.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from sampling.call import Call
from sampling.errors import UserError
from sampling.hardware.cluster import hardware_facts, known_hardware
from sampling.importers.table import ImportRequest, Row, Table, hardware_of_device, shown_name
from sampling.importers.torch_trace.calls import calls_and_owners, collective_of
from sampling.importers.torch_trace.events import RECORD, Kernel, Op, Trace, load_trace, plain_name
from sampling.number_text import whole_percent

SOURCE = "torch-trace"
PATH = "a Chrome trace of torch.profiler (record_shapes=True), or a folder of them"
COLLECTIVE_KERNELS = ("nccl", "rccl", "mscclKernel")
PATTERNS = ("**/*.json", "**/*.json.gz")


def read(request: ImportRequest) -> list[Table]:
    """One table per trace; UserError for another file, or if no operator is one of our calls."""
    files = trace_files(request.path)
    return [_table(file, request) for file in files]


def trace_files(path: Path | None, *, patterns: Sequence[str] = PATTERNS) -> list[Path]:
    """The traces at a path, which is one or a folder of them, whose names have one of the `patterns`; UserError where there is no such
    path, or none in it."""
    if path is None:
        raise UserError(f"PATH: missing; give a trace: {RECORD}")
    if not path.exists():
        raise UserError(f"{path}: there is no such file or folder; give a trace: {RECORD}")
    files = [path] if path.is_file() else sorted({file for pattern in patterns for file in path.glob(pattern)})
    if not files:
        raise UserError(f"{path}: holds no *.json or *.json.gz; give a trace: {RECORD}")
    return files


def _table(path: Path, request: ImportRequest) -> Table:
    trace = load_trace(path)
    on_device = bool(trace.kernels)
    hardware = request.system or _hardware(trace, path)
    calls, owners = calls_and_owners(trace.ops)
    operators = list(_operator_rows(trace.ops, calls, owners, on_device=on_device))
    per_node = request.ranks_per_node or len(trace.devices) or int(hardware_facts(hardware).gpus_per_node)
    collectives = list(_collective_rows(trace.kernels, per_node))
    if not operators and not collectives:
        raise UserError(f"{path}: none of its {len(trace.ops)} operators is a call of ours; {RECORD}")
    return Table(
        source=SOURCE,
        name=shown_name(path, request.path or path),
        hardware=hardware,
        rows=(*operators, *collectives),
        threads=0 if on_device else request.threads or os.cpu_count() or 1,
        provenance={
            "file": path.name,
            "device_name": trace.devices[0] if trace.devices else "cpu",
            "on_device": on_device,
        },
        remarks=tuple(_remarks(trace, [*operators, *collectives], with_collectives=bool(collectives))),
    )


def _hardware(trace: Trace, path: Path) -> str:
    if not trace.kernels:
        return "cpu"
    hardware = hardware_of_device(trace.devices[0]) if trace.devices else ""
    if not hardware:
        raise UserError(
            f"{path}: its device ({', '.join(trace.devices) or 'not named'}) is not in the catalogue; say which entry of "
            f"configs/hardware it is with --system (known: {', '.join(known_hardware())})"
        )
    return hardware


def _operator_rows(
    ops: Iterable[Op], calls: Mapping[Op, Call], owners: Mapping[Op, Op], *, on_device: bool
) -> Iterator[Row]:
    times: dict[Op, float] = {}
    made_by: dict[tuple[int, str], Op] = {}
    for op in ops:
        owner = owners.get(op)
        around = owners.get(op.parent) if op.parent is not None else None
        if around is not None and around is not owner and not on_device:  # a forward that is recomputed within a node
            times[around] = max(0.0, times[around] - op.duration_us)
        if owner is None:
            continue
        times[owner] = times.get(owner, 0.0) + (op.kernels_us if on_device else op.duration_us * (op is owner))
        if owner in calls and "Sequence number" in op.arguments:
            made_by[op.arguments["Sequence number"], plain_name(op.name)] = owner
    backward: dict[Op, float] = {}
    for node, time_us in times.items():
        forward = made_by.get((node.arguments.get("Sequence number", -1), plain_name(node.node))) if node.node else None
        if forward is not None:
            backward[forward] = backward.get(forward, 0.0) + time_us
    for op, call in calls.items():
        if times.get(op):
            yield Row(call=call, phase="forward", time_us=times[op])
        if backward.get(op) and "backward" in call.PHASES:
            yield Row(call=call, phase="backward", time_us=backward[op])


def _collective_rows(kernels: Iterable[Kernel], ranks_per_node: int) -> Iterator[Row]:
    for kernel in kernels:
        if not kernel.name.startswith(COLLECTIVE_KERNELS):
            continue
        arguments = kernel.arguments if "Collective name" in kernel.arguments else _arguments_above(kernel.op)
        collective = collective_of(arguments, ranks_per_node)
        if collective is not None:
            yield Row(call=collective, phase="forward", time_us=kernel.duration_us)


def _arguments_above(op: Op | None) -> Mapping[str, object]:
    while op is not None:
        if "Collective name" in op.arguments:
            return op.arguments
        op = op.parent
    return {}


def _remarks(trace: Trace, rows: list[Row], *, with_collectives: bool) -> Iterator[str]:
    if not trace.kernels:
        yield "no kernels in the trace: times are the operators' own on the CPU, its thread count taken from --threads or this machine"
    else:
        whole_us, mapped_us = sum(kernel.duration_us for kernel in trace.kernels), sum(row.time_us for row in rows)
        yield f"{whole_percent(1 - mapped_us / whole_us)} of the kernels' time left out: of no call of ours"
    if with_collectives:
        yield "a collective's kernel time holds the wait for the slowest rank"
