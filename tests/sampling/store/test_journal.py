"""The store: round trips, journals cut short, foreign files."""

import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pandas as pd
import pytest

from sampling.call import make_call
from sampling.collectives.kinds import AllReduce
from sampling.errors import ConfigError, SamplesError, UserError
from sampling.files.disk import replacing, write_atomically
from sampling.operators.gemm import Gemm
from sampling.store import journal
from sampling.store.journal import (
    BEGUN,
    FAILED,
    append_to_journal,
    attempting,
    blame,
    fold_journal,
    given_up,
    seconds_begun,
)
from sampling.store.profiles import read_manifest, samples_directory
from sampling.store.sample import Sample
from sampling.store.tables import iterate_samples, read_samples
from tests.made_rows import row

GEMM = row(Gemm(dtype="fp32", m=1, n=2, k=3), time_us=1.5, spread=0.1, threads=1, busy_ranks=2, repeats=7)
REDUCE = replace(GEMM, call=AllReduce(size_bytes=64, ranks=2, ranks_per_node=1))


def stored(directory: Path) -> list[Sample]:
    return list(iterate_samples(read_samples(directory)))


def test_rows_come_back_as_they_went_in(tmp_path: Path) -> None:
    for sample in (GEMM, REDUCE):
        append_to_journal(tmp_path, sample)
    assert fold_journal(tmp_path) == 2
    assert sorted(stored(tmp_path), key=lambda sample: sample.call.NAME) == [REDUCE, GEMM]
    assert not (tmp_path / "journal.jsonl").exists()


def test_a_folder_whose_name_is_not_utf8_takes_rows(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"a\xff")
    folder.mkdir()
    append_to_journal(folder, GEMM)
    assert fold_journal(folder) == 1
    assert stored(folder) == [GEMM]


def test_rows_of_both_states_of_a_device_are_kept_side_by_side(tmp_path: Path) -> None:
    burst = replace(GEMM, clock_mhz=1980.0, power_w=310.5, launch_us=4.2, exposed_us=14.5)
    sustained = replace(GEMM, state="sustained", time_us=1.7, clock_mhz=1650.0)
    for sample in (burst, sustained):
        append_to_journal(tmp_path, sample)
    fold_journal(tmp_path)
    assert stored(tmp_path) == [burst, sustained]
    append_to_journal(tmp_path, GEMM)
    fold_journal(tmp_path)
    assert stored(tmp_path) == [burst, sustained, GEMM]


def test_rows_from_before_the_states_are_bursts_of_an_unknown_clock(tmp_path: Path) -> None:
    append_to_journal(tmp_path, GEMM)
    fold_journal(tmp_path)
    path = tmp_path / "gemm.parquet"
    younger = ["state", "clock_mhz", "power_w", "launch_us", "exposed_us", "ran_kernel"]
    pd.read_parquet(path).drop(columns=younger).to_parquet(path)
    assert stored(tmp_path) == [GEMM]
    append_to_journal(tmp_path, replace(GEMM, state="sustained", power_w=700.0))
    fold_journal(tmp_path)
    assert stored(tmp_path) == [GEMM, replace(GEMM, state="sustained", power_w=700.0)]


def test_a_good_burst_does_not_take_the_place_of_a_sustained_row(tmp_path: Path) -> None:
    noisy = replace(GEMM, state="sustained", quarantine="noisy")
    append_to_journal(tmp_path, noisy)
    fold_journal(tmp_path)
    append_to_journal(tmp_path, GEMM)
    fold_journal(tmp_path)
    assert stored(tmp_path) == [noisy, GEMM]


def test_a_row_cut_short_by_a_kill_is_left_out_and_the_others_kept(tmp_path: Path) -> None:
    append_to_journal(tmp_path, GEMM)
    journal = tmp_path / "journal.jsonl"
    journal.write_text(journal.read_text() + journal.read_text()[:40])
    assert fold_journal(tmp_path) == 1
    assert stored(tmp_path) == [GEMM]


@pytest.mark.parametrize("tables_written", [0, 1, 2])
def test_a_fold_interrupted_at_any_point_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables_written: int
) -> None:
    append_to_journal(tmp_path, replace(GEMM, quarantine="noisy", session=0))
    fold_journal(tmp_path)
    for sample in (replace(GEMM, quarantine="noisy", session=1), replace(GEMM, session=1), REDUCE):
        append_to_journal(tmp_path, sample)
    rows = (tmp_path / journal.JOURNAL).read_text()
    write, written = journal.write_table, []

    def interrupted(directory: Path, name: str, samples: list[Sample]) -> None:
        if len(written) == tables_written:
            raise KeyboardInterrupt
        written.append(name)
        write(directory, name, samples)

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(journal, "write_table", interrupted)
        fold_journal(tmp_path)
    assert len(written) == tables_written
    (tmp_path / journal.FOLDING).write_text(rows)  # as it lies there until both tables are written
    assert fold_journal(tmp_path) == 3
    wanted = [REDUCE, replace(GEMM, quarantine="noisy", session=1), replace(GEMM, session=1)]
    assert stored(tmp_path) == wanted


def test_rows_appended_during_a_fold_are_folded_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank whose session was killed appends on."""
    append_to_journal(tmp_path, GEMM)
    write = journal.write_table

    def meanwhile(directory: Path, name: str, samples: list[Sample]) -> None:
        append_to_journal(tmp_path, replace(GEMM, time_us=1.75))
        write(directory, name, samples)

    with monkeypatch.context() as patch:
        patch.setattr(journal, "write_table", meanwhile)
        assert fold_journal(tmp_path) == 1
    assert fold_journal(tmp_path) == 1
    assert stored(tmp_path) == [GEMM, replace(GEMM, time_us=1.75)]


def test_no_row_is_lost_in_a_race_of_folds_and_rows(tmp_path: Path) -> None:
    rows = [replace(GEMM, time_us=1 + number / 400) for number in range(400)]
    writer = Thread(target=lambda: [append_to_journal(tmp_path, row) for row in rows])
    writer.start()
    while writer.is_alive():
        fold_journal(tmp_path)
    fold_journal(tmp_path)
    assert stored(tmp_path) == rows


GOOD = json.dumps(GEMM.as_row())
DAMAGED = [
    b"\xff\xfe\x00",
    b"3",
    b"{}",
    b"[" * 100_000,
    GOOD[:-1].encode(),
    GOOD.replace('"gemm"', '"gone"').encode(),
    GOOD.replace('"m": 1', '"m": "wide"').encode(),
    GOOD.replace('"m": 1', f'"m": {2**63}').encode(),
    GOOD.replace('"fp32"', '"fp\\ud800"').encode(),
    GOOD.replace('"time_us": 1.5', '"time_us": null').encode(),
    GOOD.replace('"forward"', '"sideways"').encode(),
]


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_is_set_aside_with_a_note(
    tmp_path: Path, line: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    later = replace(GEMM, time_us=1.75)
    append_to_journal(tmp_path, GEMM)
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(line + b"\n")
    append_to_journal(tmp_path, later)
    assert fold_journal(tmp_path) == 2
    assert stored(tmp_path) == [GEMM, later]
    assert (tmp_path / "journal.damaged.jsonl").read_bytes() == line + b"\n"
    assert "1 damaged line, the first of them line 2" in capsys.readouterr().err
    assert fold_journal(tmp_path) == 0


def test_a_row_after_one_that_was_cut_short_is_kept(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text(GOOD[:40])
    append_to_journal(tmp_path, GEMM)
    assert fold_journal(tmp_path) == 1
    assert stored(tmp_path) == [GEMM]


def test_writers_of_one_file_do_not_share_a_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with replacing(path) as one, replacing(path) as other:
        assert one != other
        assert one.parent == other.parent == tmp_path
        one.write_text("1")
        other.write_text("2")
    assert path.read_text() == "1"
    assert [left.name for left in tmp_path.iterdir()] == ["a.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, b"old")
    with pytest.raises(ValueError, match="half"), replacing(path) as temporary:
        temporary.write_text("new")
        raise ValueError("half way")
    assert path.read_text() == "old"
    assert [left.name for left in tmp_path.iterdir()] == ["a.json"]


def test_a_quarantined_row_gives_way_to_a_new_one_of_its_key(tmp_path: Path) -> None:
    for quarantine in ("noisy", ""):
        append_to_journal(tmp_path, replace(GEMM, quarantine=quarantine))
        fold_journal(tmp_path)
    assert stored(tmp_path) == [GEMM]


def test_a_missing_manifest_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(SamplesError, match=r"make sample PROFILE=nowhere"):
        read_manifest(tmp_path / "nowhere")


MANIFEST = '{"profile": "p", "hardware": "cpu", "device": {}, "sessions": [], "version": 1}'


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"profile": 1}',
        MANIFEST.replace("1", "99").encode(),
        MANIFEST.replace("[]", "null").encode(),
    ],
)
def test_a_damaged_manifest_is_an_error_that_names_the_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(SamplesError, match=r"manifest\.json"):
        read_manifest(tmp_path)


def test_a_foreign_table_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "gemm.parquet").write_text("not parquet")
    with pytest.raises(SamplesError, match=r"gemm\.parquet"):
        read_samples(tmp_path)


@pytest.mark.parametrize(
    ("column", "value"), [("repeats", -1), ("phase", "sideways"), ("m", "wide"), ("time_us", True), ("quarantine", 3)]
)
def test_a_cell_that_no_sampler_writes_is_named(column: str, value: object, tmp_path: Path) -> None:
    append_to_journal(tmp_path, GEMM)
    fold_journal(tmp_path)
    path = tmp_path / "gemm.parquet"
    pd.read_parquet(path).assign(**{column: value}).to_parquet(path)
    with pytest.raises(SamplesError, match=rf"gemm\.parquet: row 1: {column}: .* is not what a sampler writes"):
        read_samples(tmp_path)


def test_fields_that_do_not_match_are_named() -> None:
    with pytest.raises(SamplesError, match=r"unknown \['z'\], missing \['k', 'n'\]"):
        make_call("gemm", {"dtype": "fp32", "m": 1, "z": 2})


@pytest.mark.parametrize("name", ["a/b", "", ".."])
def test_a_profile_is_the_name_of_a_folder(name: str) -> None:
    with pytest.raises(ConfigError, match="not the name of a folder"):
        samples_directory(name)


# Calls that ended a session while they were timed.

ATTEMPTED = Gemm(dtype="fp32", m=1, n=2, k=3)


def test_a_call_that_is_timed_leaves_no_trace(tmp_path: Path) -> None:
    with attempting(tmp_path, ATTEMPTED, 2):
        assert (tmp_path / BEGUN).is_file()
    assert list(tmp_path.iterdir()) == []
    assert given_up(tmp_path) == {}


def test_an_error_is_the_calls_fault_with_its_first_line(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), attempting(tmp_path, ATTEMPTED, 2):
        raise RuntimeError("CUDA error: misaligned address\nand advice")
    assert given_up(tmp_path) == {(ATTEMPTED, 2): "RuntimeError: CUDA error: misaligned address"}


@pytest.mark.parametrize("error", [UserError("disk full"), KeyboardInterrupt()])
def test_what_is_not_the_calls_fault_is_not_noted(error: BaseException, tmp_path: Path) -> None:
    with pytest.raises(type(error)), attempting(tmp_path, ATTEMPTED, 2):
        raise error
    assert given_up(tmp_path) == {}


def killed_while_timing(directory: Path) -> None:
    """What a kill leaves: the call is begun and nothing else is known."""
    attempt = attempting(directory, ATTEMPTED, 2)
    attempt.__enter__()
    content = (directory / BEGUN).read_bytes()
    attempt.__exit__(None, None, None)
    (directory / BEGUN).write_bytes(content)
    blame(directory, "")


def test_a_kill_is_not_a_calls_fault_and_a_second_one_is(tmp_path: Path) -> None:
    killed_while_timing(tmp_path)
    assert given_up(tmp_path) == {}
    killed_while_timing(tmp_path)
    assert given_up(tmp_path) == {(ATTEMPTED, 2): "2 sessions ended while it was timed"}


def test_a_line_that_a_kill_cut_short_is_passed_over(tmp_path: Path) -> None:
    with pytest.raises(TypeError), attempting(tmp_path, ATTEMPTED, 1):
        raise TypeError("no")
    with (tmp_path / FAILED).open("a") as file:
        file.write('{"call": "gemm", "fie')
    assert list(given_up(tmp_path)) == [(ATTEMPTED, 1)]


def test_how_long_a_call_is_begun(tmp_path: Path) -> None:
    assert seconds_begun(tmp_path) == 0.0
    with attempting(tmp_path, ATTEMPTED, 1):
        assert seconds_begun(tmp_path) >= 0.0
    blame(tmp_path, "nothing is begun")
    assert given_up(tmp_path) == {}
