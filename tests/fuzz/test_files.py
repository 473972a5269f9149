"""Hundreds of damaged files of every kind: each is read all the same, or refused by its name with exit code 2 or 3."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.files import BANK, Kind, damaged, kinds, use_bank
from tests.fuzz.judgement import Counts

CASES = 650
BANKS = 10
"""A bank is large, so few of them are damaged."""


def reading(kind: Kind, path: Path) -> Iterator[str]:
    kind.read(path)
    yield from ()


def damage(counts: Counts, kind: Kind, folder: Path) -> None:
    path = folder / kind.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(kind.sound)
    kind.read(path)
    says = path.name.split("_")[0] if kind.says_its_name else ""
    for case in range(kind.cases):
        path.write_bytes(damaged(kind.sound, random.Random(f"{kind.name} {case}")))
        counts.judge(f"{kind.name} case {case}", lambda: reading(kind, path), says=says)


def test_a_damaged_file_is_refused_by_its_name_or_read_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts, by_kind = Counts(), {}
    (tmp_path / "made").mkdir()
    for number, kind in enumerate(kinds(tmp_path / "made")):
        (tmp_path / str(number)).mkdir()
        before = counts.refused
        damage(counts, kind, tmp_path / str(number))
        by_kind[kind.name.rpartition("/")[2]] = counts.refused - before
    bank = Kind(name="bank.npz", sound=(BANK / "bank.npz").read_bytes(), read=use_bank, cases=BANKS)
    damage(counts, bank, tmp_path)
    with capsys.disabled():
        print(f"\ndamaged files: {counts}; refused by kind: {by_kind}")
    assert counts.faults == []
    assert counts.cases >= CASES
    assert all(refused for refused in by_kind.values())
