"""The journal of a session: rows are appended as they are timed, and folded into the tables afterwards."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sampling.errors import UNREADABLE
from sampling.files.disk import state_of
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
    row = json.dumps(sample.as_row()).encode() + b"\n"
    with _locked_journal(directory / JOURNAL) as journal:
        # a line that a kill or a full disk cut short spoils this row too unless it is ended
        journal.write(row if _at_line_start(journal) else b"\n" + row)


@contextmanager
def _locked_journal(path: Path) -> Iterator[BinaryIO]:
    """The journal, open for appending, which no fold reads meanwhile; opened anew if one has just renamed it."""
    while True:
        with path.open("ab+") as journal:
            fcntl.flock(journal, fcntl.LOCK_EX)
            if os.fstat(journal.fileno()).st_ino in state_of(path)[:1]:
                yield journal
                return


def _at_line_start(journal: BinaryIO) -> bool:
    if not journal.seekable() or journal.seek(0, os.SEEK_END) == 0:
        return True
    journal.seek(-1, os.SEEK_END)
    return journal.read(1) == b"\n"


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
    print(
        f"{directory / JOURNAL}: {len(damaged)} damaged lines, the first of them line {first.number} ({first.why[:200]}); they "
        f"are set aside in {path}, and their calls are timed again; delete that file when you have looked at it",
        file=sys.stderr,
    )


def _merge(old: list[Sample], new: list[Sample]) -> list[Sample]:
    """The rows of a table and of the journal, without those that an interrupted fold already brought in."""
    renewed, folded = {sample.key for sample in new}, set(new)
    kept = [sample for sample in old if sample not in folded and not (sample.quarantine and sample.key in renewed)]
    return kept + new
