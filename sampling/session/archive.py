"""The archive of a GPU session: a folder of at most eight files of at most 16 MiB that survives a kill at any moment.

    archive.json           what the rows are tied to: the device, the sessions, whether it was a rehearsal
    calls.json             the calls of named runs, where some were given
    events-1.jsonl …       what happened, a line each, forced to the disk before the session goes on

A line holds the checksum of its content, so that a damaged archive is distinguished from one that a kill cut short. Whoever reads on from
it needs nothing else: copied to another machine, the session goes on there.
"""

import json
import math
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from sampling.call import Call, Phase, Request, State, make_call
from sampling.errors import UNREADABLE, SamplesError, UserError
from sampling.files.disk import NotReadError, folder_lock, naming_the_disk, read_bytes, write_atomically
from sampling.files.faults import counted
from sampling.files.schema import read
from sampling.store.journal import MOST_ENDS
from sampling.store.pace_log import PaceReading, reading_of
from sampling.store.sample import Sample, sample_from_row
from sampling.timing.row_checks import Quarantine
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


def archive_lock(directory: Path) -> AbstractContextManager[int]:
    """The lock of an archive's folder while a session, or its worker, writes to it."""
    return folder_lock(
        directory, f"{directory}: another session writes to it; wait for it to end, or give another --out"
    )


MOST_IMPOSSIBLE = 2
"""Rows of one phase and state that are faster than the device can be, after which a further one is taken to be no better."""


@dataclass(slots=True)
class Progress:
    """The state of a session, event by event."""

    rows: list[Sample] = field(default_factory=list)
    paces: list[PaceReading] = field(default_factory=list)
    """Readings of the device's pace."""
    left_out: dict[Call, str] = field(default_factory=dict)
    """Calls that are not timed, and why."""
    begun: Call | None = None
    """The call that is timed now, or was when the session was killed."""
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Real steps by name: what their command answered, or the reason that it did not."""
    _reasons: dict[tuple[Call, Phase], dict[State, list[str]]] = field(default_factory=dict)
    """Why the rows of a phase are quarantined, in each state; '' for a good one."""
    _beginnings: Counter[Call] = field(default_factory=Counter)

    def take(self, event: Mapping[str, Any]) -> None:
        """Add one event; SamplesError for one that no session writes."""
        try:
            self._take(event)
        except UNREADABLE as error:
            raise SamplesError(f"an event of this session cannot be read ({error}); fetch the archive again") from None

    def _take(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind == "row":
            row = sample_from_row(event["row"])
            self.rows.append(row)
            by_state = self._reasons.setdefault((row.call, row.phase), {})
            by_state.setdefault(row.state, []).append(row.quarantine)
            self._beginnings[row.call] = 0
        elif kind == "pace":
            self.paces.append(reading_of(event["reading"]))
        elif kind == "begin":
            self.begun = make_call(event["call"], event["fields"])
            self._beginnings[self.begun] += 1
        elif kind in ("end", "lost") and self.begun is not None:
            if event["reason"]:
                self.left_out[self.begun] = event["reason"]
            self._beginnings[self.begun] = 0
            self.begun = None
        elif kind == "step":
            self.steps[event["name"]] = event["result"]

    def lacking(self, request: Request, timings: float = math.inf) -> Request | None:
        """The phases of a request that are still to be timed, of those with fewer `timings`; None if there are none, or the call is
        left out."""
        if self.why_left_out(request.call):
            return None
        phases = tuple(phase for phase in request.phases if not self._is_timed(request.call, phase, timings))
        return Request(call=request.call, phases=phases) if phases else None

    def _is_timed(self, call: Call, phase: Phase, timings: float) -> bool:
        """Whether the phase has rows, and the rows of each state are good, or so many, or would not get better."""
        by_state = self._reasons.get((call, phase), {})
        return bool(by_state) and all(_is_final(each) or len(each) >= timings for each in by_state.values())

    def why_left_out(self, call: Call) -> str:
        """Why a call is not timed (again); '' if it may be."""
        if self._beginnings[call] >= MOST_ENDS:
            return f"it was begun {MOST_ENDS} times and ended the session each time"
        return self.left_out.get(call, "")

    def answered_steps(self) -> frozenset[str]:
        """Names of the real steps that are done; one that failed, or ran out of its session's time, is not."""
        return frozenset(name for name, result in self.steps.items() if "error" not in result)

    def summary(self) -> str:
        """Rows, calls and steps so far, in words."""
        calls = len({row.call for row in self.rows})
        bad = sum("" not in reasons for by_state in self._reasons.values() for reasons in by_state.values())
        reasons = Counter(self.left_out.values())
        left = "".join(f"; left out {count} × {reason}" for reason, count in reasons.most_common(5))
        steps = len(self.answered_steps())
        return f"{counted(len(self.rows), 'row')} of {counted(calls, 'call')} ({bad} left quarantined), {counted(steps, 'real step')}{left}"


def _is_final(reasons: Sequence[str]) -> bool:
    impossible = sum(reason.startswith(Quarantine.IMPOSSIBLE.value) for reason in reasons)
    return "" in reasons or impossible >= MOST_IMPOSSIBLE


def progress_of(events: Iterable[Mapping[str, Any]]) -> Progress:
    progress = Progress()
    for event in events:
        progress.take(event)
    return progress


class SessionLog:
    """The events of an archive's folder, which this process has locked; `now_s` is the session's clock."""

    def __init__(self, directory: Path, now_s: Callable[[], float]) -> None:
        self._writer = EventWriter(directory)
        self._now_s = now_s
        self.progress: Progress = progress_of(read_events(directory))

    def record(self, kind: str, **content: Any) -> None:
        event: Mapping[str, Any] = {"event": kind, "at_s": round(self._now_s(), 3), **content}
        self._writer.append(event)
        self.progress.take(event)

    def begin(self, request: Request, section: str) -> None:
        self.record("begin", section=section, call=request.call.NAME, fields=request.call.fields())

    def row(self, sample: Sample) -> None:
        self.record("row", row=sample.as_row())

    def pace(self, reading: PaceReading) -> None:
        self.record("pace", reading=asdict(reading))

    def end(self, reason: str = "") -> None:
        """The call begun last is over; `reason` says why it was not, or not wholly, timed."""
        self.record("end", reason=reason)

    def lost(self, reason: str) -> None:
        """The worker ended with the call begun last, which is not timed again."""
        self.record("lost", reason=reason)

    def note(self, text: str) -> None:
        self.record("note", text=text)
