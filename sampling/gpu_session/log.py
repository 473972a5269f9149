"""The log of a session: each event goes to the archive's disk first, then into the progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sampling.call import Request
from sampling.gpu_session.archive import EventWriter, read_events
from sampling.gpu_session.progress import Progress, progress_of
from sampling.store.sample import Sample


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

    def end(self, reason: str = "") -> None:
        """The call begun last is over; `reason` says why it was not, or not wholly, timed."""
        self.record("end", reason=reason)

    def lost(self, reason: str) -> None:
        """The worker ended with the call begun last, which is not timed again."""
        self.record("lost", reason=reason)

    def note(self, text: str) -> None:
        self.record("note", text=text)
