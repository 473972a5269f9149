"""The journal of a session: rows are appended as they are timed, and folded into the tables afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sampling.store.sample import Sample, sample_from_row
from sampling.store.tables import iterate_samples, read_samples, write_table

JOURNAL = "journal.jsonl"


def append_to_journal(directory: Path, sample: Sample) -> None:
    """Write one row so that it survives whatever happens next."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / JOURNAL).open("a") as journal:
        journal.write(json.dumps(sample.as_row()) + "\n")


def journal_length(directory: Path) -> int:
    """Number of rows in the journal."""
    journal = directory / JOURNAL
    return journal.read_bytes().count(b"\n") if journal.is_file() else 0


def fold_journal(directory: Path) -> int:
    """Move the journal's rows into the parquet files; returns how many.

    A row that a kill cut short is dropped. A quarantined row gives way to a newer row of the same key. Folding can be
    interrupted anywhere: folding again leaves every row exactly one time.
    """
    journal = directory / JOURNAL
    if not journal.is_file():
        return 0
    rows = list(_complete_rows(journal.read_text().splitlines()))
    by_name: dict[str, list[Sample]] = {}
    for row in rows:
        sample = sample_from_row(row)
        by_name.setdefault(sample.call.NAME, []).append(sample)
    tables = read_samples(directory)
    for name, new in by_name.items():
        old = list(iterate_samples({name: tables[name]})) if name in tables else []
        write_table(directory, name, _merge(old, new))
    journal.unlink()
    return len(rows)


def _complete_rows(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def _merge(old: list[Sample], new: list[Sample]) -> list[Sample]:
    """The rows of a table and of the journal, without those that an interrupted fold already brought in."""
    renewed, folded = {sample.key for sample in new}, set(new)
    kept = [sample for sample in old if sample not in folded and not (sample.quarantine and sample.key in renewed)]
    return kept + new
