"""Calls that were being timed when their ranks failed: noted while they are timed, and not begun again."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sampling.call import Call
from sampling.catalogue import make_call
from sampling.errors import UNREADABLE, UserError, in_one_line
from sampling.files.disk import write_atomically

BEGUN = "begun.json"
"""The call that is timed now, with the number of busy ranks."""
FAILED = "failed.jsonl"
"""Calls that were timed when a session failed or ended, one line each, with the reason; '' where only the end is known."""
MOST_ENDS = 2
"""Sessions that may end for an unknown reason while they time a call: a kill may fall on any call once, and on one call twice hardly by
chance."""


@contextmanager
def attempting(directory: Path, call: Call, busy_ranks: int) -> Iterator[None]:
    """The block times the call; an error in it, other than the user's or an interrupt, is noted as the call's fault."""
    begun = {"call": call.NAME, "fields": call.fields(), "busy_ranks": busy_ranks}
    write_atomically(directory / BEGUN, json.dumps(begun).encode())
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        blame(directory, in_one_line(error))
        raise
    finally:
        (directory / BEGUN).unlink(missing_ok=True)


def blame(directory: Path, why: str) -> None:
    """Note the call that is begun, if there is one, with the reason; '' if only the session's end is known."""
    try:
        begun = json.loads((directory / BEGUN).read_bytes())
    except FileNotFoundError:
        return
    with (directory / FAILED).open("a", encoding="utf-8") as file:
        file.write(json.dumps({**begun, "why": why}) + "\n")
    (directory / BEGUN).unlink()


def forget_begun(directory: Path) -> None:
    """The call that is begun was interrupted by no fault of its own."""
    (directory / BEGUN).unlink(missing_ok=True)


def seconds_begun(directory: Path) -> float:
    """Seconds for which the call that is begun has been timed; 0 if there is none."""
    try:
        return max(0.0, time.time() - (directory / BEGUN).stat().st_mtime)
    except FileNotFoundError:
        return 0.0


def given_up(directory: Path) -> dict[tuple[Call, int], str]:
    """The calls, by busy ranks, that are not begun again, with the reason."""
    path = directory / FAILED
    if not path.is_file():
        return {}
    reasons: dict[tuple[Call, int], str] = {}
    ends: Counter[tuple[Call, int]] = Counter()
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            key, why = _read(json.loads(line))
        except UNREADABLE:  # a kill cut it short
            continue
        ends[key] += 1
        if why or ends[key] >= MOST_ENDS:
            reasons[key] = why or f"{ends[key]} sessions ended while it was timed"
    return reasons


def _read(entry: dict[str, Any]) -> tuple[tuple[Call, int], str]:
    return (make_call(entry["call"], entry["fields"]), int(entry["busy_ranks"])), str(entry["why"])
