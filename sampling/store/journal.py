"""The journal of a session: rows are appended as they are timed, and folded into the tables afterwards."""

import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sampling.call import Call, make_call
from sampling.command_line import log
from sampling.errors import UNREADABLE, UserError, in_one_line
from sampling.files.disk import append_line, state_of, write_atomically
from sampling.files.faults import counted
from sampling.store.sample import Sample, sample_from_row
from sampling.store.tables import iterate_samples, read_samples, write_table

JOURNAL = "journal.jsonl"
FOLDING = "journal.folding.jsonl"
"""The journal while it is folded: a rank that is still alive appends to a new one."""
DAMAGED = "journal.damaged.jsonl"
"""Lines that cannot be read, set aside."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Damaged:
    number: int
    line: bytes
    why: str


def append_to_journal(directory: Path, sample: Sample) -> None:
    """Write one row so that it survives whatever happens next."""
    directory.mkdir(parents=True, exist_ok=True)
    with _locked_journal(directory / JOURNAL) as journal:
        append_line(journal, json.dumps(sample.as_row()))


@contextmanager
def _locked_journal(path: Path) -> Iterator[BinaryIO]:
    """The journal, open for appending, which no fold reads meanwhile; opened anew if one has just renamed it."""
    while True:
        with path.open("ab+") as journal:
            fcntl.flock(journal, fcntl.LOCK_EX)
            if os.fstat(journal.fileno()).st_ino in state_of(path)[:1]:
                yield journal
                return


def journal_length(directory: Path) -> int:
    """Number of rows in the journal."""
    journal = directory / JOURNAL
    return journal.read_bytes().count(b"\n") if journal.is_file() else 0


def read_journal(directory: Path) -> list[Sample]:
    """The rows of the journal, without lines that cannot be read."""
    journal = directory / JOURNAL
    return _parsed(journal.read_bytes())[0] if journal.is_file() else []


def fold_journal(directory: Path) -> int:
    """Move the journal's rows into the parquet files; returns how many.

    A row that a kill cut short is dropped; other lines that cannot be read are set aside, with a note on stderr. A
    quarantined row gives way to a newer row of the same key. Folding can be interrupted anywhere, and ranks may append
    meanwhile: folding again leaves every row exactly one time.
    """
    journal, folding = directory / JOURNAL, directory / FOLDING
    folded = _fold(directory, folding) if folding.is_file() else 0  # of a fold that was interrupted
    if journal.is_file():
        journal.rename(folding)
        folded += _fold(directory, folding)
    return folded


def _fold(directory: Path, folding: Path) -> int:
    with folding.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # a rank that opened it before it was renamed ends its row first
        samples, damaged = _parsed(file.read())
    if damaged:
        _set_aside(directory, damaged)
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.call.NAME, []).append(sample)
    tables = read_samples(directory)
    for name, new in by_name.items():
        old = list(iterate_samples({name: tables[name]})) if name in tables else []
        write_table(directory, name, _merge(old, new))
    folding.unlink()
    return len(samples)


def _parsed(content: bytes) -> tuple[list[Sample], list[_Damaged]]:
    """The rows, and the lines that cannot be read, a last one without an end aside: a kill cut it short."""
    samples, damaged = [], []
    *lines, last = content.split(b"\n")
    for number, line in enumerate([*lines, last], start=1):
        try:
            if line:
                samples.append(sample_from_row(json.loads(line.decode())))
        except UNREADABLE as error:
            if number <= len(lines):
                damaged.append(_Damaged(number=number, line=line, why=str(error) or type(error).__name__))
    return samples, damaged


def _set_aside(directory: Path, damaged: Sequence[_Damaged]) -> None:
    path = directory / DAMAGED
    with path.open("ab") as file:
        file.writelines(each.line + b"\n" for each in damaged)
    first = damaged[0]
    log(
        f"{directory / JOURNAL}: {counted(len(damaged), 'damaged line')}, the first of them line {first.number} ({first.why[:200]}); they "
        f"are set aside in {path}, and their calls are timed again; delete that file when you have looked at it"
    )


def _merge(old: list[Sample], new: list[Sample]) -> list[Sample]:
    """The rows of a table and of the journal, without those that an interrupted fold already brought in."""
    renewed, folded = {sample.key for sample in new}, set(new)
    kept = [sample for sample in old if sample not in folded and not (sample.quarantine and sample.key in renewed)]
    return kept + new


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
            key, why = _attempt_in(json.loads(line))
        except UNREADABLE:  # a kill cut it short
            continue
        ends[key] += 1
        if why or ends[key] >= MOST_ENDS:
            reasons[key] = why or f"{ends[key]} sessions ended while it was timed"
    return reasons


def _attempt_in(entry: dict[str, Any]) -> tuple[tuple[Call, int], str]:
    return (make_call(entry["call"], entry["fields"]), int(entry["busy_ranks"])), str(entry["why"])
