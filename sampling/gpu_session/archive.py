"""The archive of a GPU session: a folder of at most eight files of at most 16 MiB that survives a kill at any moment.

    archive.json           what the rows are tied to: the device, the sessions, whether it was a rehearsal
    calls.json             the calls of named runs, where some were given
    events-1.jsonl …       what happened, a line each, forced to the disk before the session goes on

A line holds the checksum of its content, so that a damaged archive is told from one that a kill cut short. Whoever reads on from
it needs nothing else: copied to another machine, the session goes on there.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from sampling.errors import SamplesError, UserError
from sampling.files.disk import naming_the_disk, write_atomically
from sampling.files.regular import NotReadError, read_bytes
from sampling.files.schema import read
from sampling.units import MIB

FACTS, CALLS = "archive.json", "calls.json"
MOST_BYTES = 16 * 2**20
"""Size of a file that every carrier of files takes along."""
MOST_PARTS = 6
"""Files of events: with the two others they are eight."""
CHECK = "check"


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveFacts:
    """The device and code that an archive's rows are tied to. `id` is its own, whatever folder it lies in."""

    HEADER: ClassVar[Mapping[str, Any]] = {"format": "steptime-gpu-session", "version": 1}

    id: str
    hardware: str
    device: dict[str, Any]
    rehearsal: bool
    """Whether no device was there, so that its rows are those of a fake one."""
    sessions: list[dict[str, Any]] = field(default_factory=list)


def parts(directory: Path) -> list[Path]:
    """The files of events, in their order."""
    numbered = [directory / f"events-{number}.jsonl" for number in range(1, MOST_PARTS + 1)]
    return [path for path in numbered if path.is_file()]


def read_facts(directory: Path) -> ArchiveFacts:
    """The facts of the archive in a folder; SamplesError for none, or damaged ones."""
    if not (directory / FACTS).is_file():
        raise SamplesError(f"{directory}: holds no {FACTS}, so it is not the archive of a GPU session; give its folder")
    return read(ArchiveFacts, directory / FACTS, error=SamplesError, fix="fetch the archive again")


def write_facts(directory: Path, facts: ArchiveFacts) -> None:
    with naming_the_disk(directory / FACTS):
        write_atomically(directory / FACTS, json.dumps({**ArchiveFacts.HEADER, **asdict(facts)}, indent=1).encode())


def read_events(directory: Path) -> Iterator[dict[str, Any]]:
    """The events so far, without a last line that a kill cut short; SamplesError for a damaged line, naming it."""
    for path in parts(directory):
        try:
            content = read_bytes(path, most_bytes=MOST_BYTES)
        except NotReadError as error:
            raise SamplesError(f"{path}: {error}") from None
        for number, line in enumerate(content.split(b"\n")[:-1], start=1):
            yield _event(line, f"{path}: line {number}")


def _event(line: bytes, where: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
        check = event.pop(CHECK)
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError):
        raise SamplesError(f"{where}: is not an event of a GPU session; fetch the archive again") from None
    if check != _check(event):
        raise SamplesError(f"{where}: its checksum differs: the file is damaged; fetch the archive again")
    return dict(event)


def _check(event: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(event).encode())


class ArchiveFullError(UserError):
    """An archive that holds as much as it may."""


@dataclass(slots=True)
class EventWriter:
    """Appends events to an archive that its process has locked."""

    directory: Path

    def __post_init__(self) -> None:
        for path in parts(self.directory):
            _cut_to_whole_lines(path)

    def append(self, event: Mapping[str, Any]) -> None:
        """Write an event; it survives whatever happens after this returns."""
        line = json.dumps({**event, CHECK: _check(event)}).encode() + b"\n"
        path = self._part_for(len(line))
        with naming_the_disk(path), path.open("ab") as file:
            write_through(file.fileno(), line)

    def _part_for(self, size: int) -> Path:
        existing = parts(self.directory)
        if existing and existing[-1].stat().st_size + size <= MOST_BYTES:
            return existing[-1]
        if len(existing) == MOST_PARTS:
            raise ArchiveFullError(
                f"{self.directory}: holds {MOST_PARTS} files of {MOST_BYTES // MIB} MiB, which is all that an archive may; "
                "go on with another --out"
            )
        path = self.directory / f"events-{len(existing) + 1}.jsonl"
        with naming_the_disk(path):
            path.touch()
            _sync_directory(self.directory)
        return path


def write_through(descriptor: int, line: bytes) -> None:
    """Write all of a line and wait until the disk has it."""
    while line:
        line = line[os.write(descriptor, line) :]
    os.fsync(descriptor)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cut_to_whole_lines(path: Path) -> None:
    """Remove a last line that a kill cut short."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)


@contextmanager
def archive_lock(directory: Path) -> Iterator[int]:
    """Lock an archive's folder, which is made if need be; UserError while another session, or its worker, holds it.

    Yields the lock's descriptor: processes that inherit it keep the folder locked after this one.
    """
    with naming_the_disk(directory):
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{directory}: another session writes to it; wait for it to end, or give another --out"
            ) from None
        yield descriptor
    finally:
        os.close(descriptor)
