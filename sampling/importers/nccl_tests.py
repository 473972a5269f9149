"""Logs of nccl-tests and rccl-tests (github.com/NVIDIA/nccl-tests, github.com/ROCm/rccl-tests), out-of-place times.

`size` is the buffer as our collectives count it: the gathered buffer of all_gather and reduce_scatter, the buffer of one rank of
alltoall, the message of sendrecv. The header lists the ranks and their hosts.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sampling.call import Call
from sampling.collectives.kinds import AllGather, AllReduce, AllToAll, Collective, ReduceScatter, SendRecv
from sampling.errors import ConfigError, SamplesError
from sampling.files.disk import NotReadError, read_text
from sampling.files.faults import counted
from sampling.hardware.cluster import known_hardware
from sampling.importers.table import ImportRequest, Row, Table, hardware_of_device, shown_name

SOURCE = "nccl-tests"
PATH = "a log of nccl-tests or rccl-tests, or a folder of them"
RANK = re.compile(r"#\s*Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)")
PROGRAM = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|alltoall|sendrecv|\w+)_perf\b")
START = re.compile(r"#\s*nThread")
VERSION = re.compile(r"(?:[NR]CCL version|nccl-library=)[ :]*([\w.+-]+)")
HEADER = re.compile(r"#\s*size\s+count")
FOLDER_PATTERNS = ("**/*.log", "**/*.txt", "**/*.out")
HELP = "give the output of all_reduce_perf and the like with its header lines, as a file or a folder of *.log, *.txt and *.out"


COLLECTIVES: dict[str, type[Collective]] = {
    "all_reduce": AllReduce,
    "all_gather": AllGather,
    "reduce_scatter": ReduceScatter,
    "alltoall": AllToAll,
    "sendrecv": SendRecv,
}


def _call(kind: type[Collective], size_bytes: int, ranks: int, per_node: int) -> Call:
    if kind is SendRecv:
        # all ranks send to the next one at the same time; if they span nodes, so does the slowest message
        ranks, per_node = 2, 2 if ranks == per_node else 1
    return kind(size_bytes=size_bytes, ranks=ranks, ranks_per_node=per_node)


@dataclass(kw_only=True, slots=True)
class Section:
    """One run of one program in a log."""

    program: str = ""
    version: str = ""
    device: str = ""
    hosts: list[str] = field(default_factory=list)
    time_column: int = -1
    lines: list[tuple[int, list[str]]] = field(default_factory=list)


def read(request: ImportRequest) -> list[Table]:
    """One table per run; SamplesError for a file without results, with line and fix."""
    if request.path is None or not request.path.exists():
        raise SamplesError(f"import {SOURCE}: no file or folder {request.path or ''}; {HELP}")
    if request.collective and request.collective not in COLLECTIVES:
        raise ConfigError(f"--collective {request.collective}: none of {', '.join(COLLECTIVES)}")
    files = _logs(request.path)
    tables = [table for file in files for table in _tables(file, request, alone=len(files) == 1)]
    if not tables:
        raise SamplesError(f"{request.path}: no results of {SOURCE}; {HELP}")
    return tables


def _logs(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted({file for pattern in FOLDER_PATTERNS for file in path.glob(pattern)})


def _tables(file: Path, request: ImportRequest, *, alone: bool) -> Iterator[Table]:
    try:
        text = read_text(file)
    except NotReadError as error:
        raise SamplesError(f"{file}: cannot be read as a log ({error}); {HELP}") from None
    sections = [section for section in _sections(text) if section.lines]
    if not sections and alone:
        raise SamplesError(f"{file}: no results of {SOURCE} in it; {HELP}")
    for index, section in enumerate(sections):
        number = f" run {index + 1}" if len(sections) > 1 else ""
        yield _table(section, file, number, request)


def _sections(text: str) -> Iterator[Section]:
    section = Section()
    for number, line in enumerate(text.splitlines(), start=1):
        if START.match(line) and (section.lines or section.hosts):
            yield section
            section = Section(version=section.version)
        if match := PROGRAM.search(line):
            if section.lines:
                yield section
                section = Section(version=section.version)
            section.program = match[1]
        if match := VERSION.search(line):
            section.version = match[1]
        if match := RANK.match(line):
            section.hosts.append(match[2])
            section.device = match[3].strip()
        elif HEADER.match(line):
            section.time_column = line.lstrip("# ").split().index("time")
        elif re.match(r"\s*\d+\s+\d+\s+\w+", line):
            section.lines.append((number, line.split()))
    yield section


def _table(section: Section, file: Path, number: str, request: ImportRequest) -> Table:
    given = request.path or file
    name = request.collective or section.program
    if not name:
        raise SamplesError(f"{file}{number}: does not say which collective it timed; name it with --collective")
    if not section.hosts or section.time_column < 0:
        lacks = "'# Rank … on HOST device …'" if not section.hosts else "'# size count … time …'"
        raise SamplesError(
            f"{file}{number}: lacks the header lines {lacks}, without which the rows have no meaning; {HELP}"
        )
    per_node = Counter(section.hosts)
    ranks, ranks_per_node = len(section.hosts), max(per_node.values())
    if len(set(per_node.values())) > 1:
        raise SamplesError(
            f"{file}{number}: its nodes have different numbers of ranks, {dict(per_node)}; run it with the same number on each"
        )
    table = Table(
        source=SOURCE,
        name=f"{name} {len(per_node)}x{ranks_per_node} {shown_name(file, given)}{number}",
        hardware=_hardware(section.device, request.system, file),
        rows=(),
        provenance={"file": file.name, "device_name": section.device, "version": section.version},
    )
    if name not in COLLECTIVES:
        return table.holding(remark=f"{counted(len(section.lines), 'row')} left out: no collective of ours is {name}")
    rows = [
        _row(fields, section, COLLECTIVES[name], ranks, ranks_per_node, f"{file}:{line}")
        for line, fields in section.lines
    ]
    good = tuple(row for row in rows if row is not None)
    empty = len(rows) - len(good)
    return table.holding(good, remark=f"{counted(empty, 'row')} left out: of 0 bytes" if empty else "")


def _row(
    fields: list[str], section: Section, kind: type[Collective], ranks: int, per_node: int, where: str
) -> Row | None:
    try:
        size, time_us = int(fields[0]), float(fields[section.time_column])
        wrong = fields[section.time_column + 3]
    except (ValueError, IndexError):
        raise SamplesError(
            f"{where}: not a whole row of results ({' '.join(fields)}); the log is cut short or mixed with other output: mend or delete the line"
        ) from None
    if size == 0:
        return None
    return Row(call=_call(kind, size, ranks, per_node), phase="forward", time_us=time_us, flaw=_flaw(wrong))


def _flaw(wrong: str) -> str:
    """The fault of a row by its column #wrong (in older versions `error`, the largest difference); '' if none."""
    if wrong == "N/A":
        return "its result was not checked: #wrong is N/A (run with -c 1)"
    return "" if float(wrong) <= 1e-2 else f"its result is wrong: #wrong is {wrong}"


def _hardware(device: str, system: str, file: Path) -> str:
    if system:
        return system
    hardware = hardware_of_device(device)
    if not hardware:
        raise SamplesError(
            f"{file}: its device {device!r} is not in the catalogue; say which entry of configs/hardware it is with "
            f"--system (known: {', '.join(known_hardware())})"
        )
    return hardware
