"""The sampler as its user runs it: real processes, real gloo, a tiny box of shapes."""

import errno
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sampling.__main__ import _left, _quarantined, main, parser, run
from sampling.choosing.contradictions import MOST_ROWS
from sampling.hardware.this_device import identify
from sampling.operators.gemm import Gemm
from sampling.session.profile import open_profile, profile_lock
from sampling.session.run_tasks import SessionOutcome
from sampling.store.journal import append_to_journal
from sampling.store.profiles import Manifest, read_manifest, write_manifest
from sampling.store.sample import Sample
from sampling.store.tables import iterate_samples, read_samples
from sampling.timing.row_checks import kind_of
from tests.made_rows import row
from tests.sampling.small_sessions import arguments_in, calls_file


def stored(data: Path) -> list[Sample]:
    return list(iterate_samples(read_samples(data / "samples" / "test")))


def without_paces(rows: Iterable[Sample]) -> set[Sample]:
    """The rows without what a later session says of their pace."""
    return {replace(row, pace=1.0) for row in rows}


@pytest.mark.usefixtures("starts_warm")
def test_a_session_times_what_is_asked_first_and_the_next_goes_on_where_it_stopped(tmp_path: Path) -> None:
    arguments = arguments_in(tmp_path)
    assert main([*arguments, "--models", "0", "--budget", "30"]) == 0
    first = stored(tmp_path)
    assert {"gemm", "all_reduce"} <= {sample.call.NAME for sample in first if sample.busy_ranks == 2}
    assert all(0 < sample.low_us <= sample.time_us <= sample.high_us for sample in first)

    assert main([*arguments, "--models", "1", "--budget", "10"]) == 0
    second = stored(tmp_path)
    good = [sample.key for sample in second if not sample.quarantine]
    # on a busy machine rows are quarantined, and the next session times them again
    assert without_paces(first) - without_paces(second) <= without_paces(row for row in first if row.quarantine)
    assert set(second) - set(first)
    assert max(Counter(good).values()) <= MOST_ROWS
    sessions = read_manifest(tmp_path / "samples" / "test").sessions
    assert [session["id"] for session in sessions] == [0, 1]
    assert 1 in {sample.session for sample in second}


def test_a_session_that_keeps_no_row_leaves_no_trace_in_the_manifest(tmp_path: Path) -> None:
    options = parser().parse_args(
        ["--profile", "test", "--hardware", "cpu", "--data", str(tmp_path), "--models", "0", "--budget", "1"]
    )

    def idle(*_: object, **__: object) -> SessionOutcome:
        return SessionOutcome(kept=0, quarantined=Counter(), named_left=0, optional_left=0)

    assert run(options, strategy=idle) == 0
    assert read_manifest(tmp_path / "samples" / "test").sessions == []


@pytest.mark.parametrize("other", [{"device": {"name": "abacus", "cores": 1}}, {"hardware": "abacus"}])
def test_rows_of_another_machine_are_not_mixed_with_ours(
    other: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = replace(Manifest(profile="test", hardware="cpu", device=identify("cpu")), **other)
    write_manifest(tmp_path / "samples" / "test", manifest)
    assert main(["--profile", "test", "--hardware", "cpu", "--data", str(tmp_path), "--budget", "1"]) == 3
    message = capsys.readouterr().err
    assert "abacus" in message
    assert "--fresh" in message


def test_calls_of_runs_on_other_hardware_are_not_timed_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = calls_file(tmp_path / "calls.json", hardware="NVIDIA H100-SXM5-80GB")
    assert main(["--hardware", "cpu", "--data", str(tmp_path), "--calls", str(calls)]) == 2
    assert "'NVIDIA H100-SXM5-80GB'" in capsys.readouterr().err
    assert not (tmp_path / "samples").exists()


def test_calls_of_more_ranks_than_cores_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = calls_file(tmp_path / "calls.json", ranks=4096)
    assert main(["--hardware", "cpu", "--data", str(tmp_path), "--calls", str(calls)]) == 2
    assert "4096 ranks" in capsys.readouterr().err


def test_a_second_session_of_a_profile_is_turned_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--profile", "test", "--hardware", "cpu", "--data", str(tmp_path), "--models", "1", "--fresh"]
    with profile_lock(tmp_path / "samples" / "test"):
        assert main(arguments) == 2
    assert "another session is sampling" in capsys.readouterr().err
    with profile_lock(tmp_path / "samples" / "test"):  # the lock went with its holder
        pass


def test_rows_of_an_interrupted_session_are_folded_in_by_the_next(tmp_path: Path) -> None:
    directory = tmp_path / "samples" / "test"
    write_manifest(directory, Manifest(profile="test", hardware="cpu", device=identify("cpu")))
    sample = row(Gemm(dtype="fp32", m=1, n=1, k=1))
    append_to_journal(directory, sample)
    manifest = open_profile(directory, profile="test", hardware="cpu")
    assert stored(tmp_path) == [sample]
    assert len(manifest.sessions) == 1

    open_profile(directory, profile="test", hardware="cpu", fresh=True)
    assert stored(tmp_path) == []
    aside = next((tmp_path / "samples").glob("test.aside-*"))
    assert list(iterate_samples(read_samples(aside))) == [replace(sample)]


def test_rows_set_aside_within_one_second_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sampling.session.profile.time.strftime", lambda form: "now")
    directory = tmp_path / "samples" / "test"
    for sessions in range(3):
        manifest = open_profile(directory, profile="test", hardware="cpu", fresh=True)
        write_manifest(directory, replace(manifest, sessions=[{"id": sessions}]))
    asides = sorted((tmp_path / "samples").glob("test.aside-*"))
    assert [path.name for path in asides] == ["test.aside-now", "test.aside-now-2"]
    assert [read_manifest(path).sessions for path in asides] == [[{"id": 0}], [{"id": 1}]]


def test_rows_that_cannot_be_set_aside_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "samples" / "test"
    write_manifest(directory, Manifest(profile="test", hardware="cpu", device=identify("cpu")))

    def read_only(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "rename", read_only)
    arguments = ["--profile", "test", "--hardware", "cpu", "--data", str(tmp_path), "--models", "0", "--fresh"]
    assert main(arguments) == 2
    assert f"{directory}: cannot be written (Read-only file system)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["--budget", "nan"], "--budget"),
        (["--calls", "none.json"], "none.json"),
        (["--hardware", "cpuu"], "did you mean 'cpu'"),
        (["--ranges", "none.yml"], "none.yml"),
    ],
)
def test_bad_arguments_are_named(arguments: list[str], fragment: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--hardware", "cpu", *arguments]) == 2
    assert fragment in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--hardware", "h100-sxm", "--data", str(tmp_path)]) == 2
    assert "--hardware: 'h100-sxm'" in capsys.readouterr().err
    file = "configs/clusters/one-node-8xh100.yml"
    assert main(["--cluster", file, "--data", str(tmp_path)]) == 2
    assert f"--cluster: {file}: hardware: 'h100-sxm'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("named_left", "optional_left", "said"),
    [
        (0, 6072, "named calls done; 6,072 timings of optional shapes left"),
        (3, 6072, "3 timings of named calls left: run again to go on"),
        (0, 0, "named calls done"),
    ],
)
def test_what_is_left_says_whether_it_was_asked_for(named_left: int, optional_left: int, said: str) -> None:
    outcome = SessionOutcome(kept=1, quarantined=Counter(), named_left=named_left, optional_left=optional_left)
    assert _left(outcome, named=True) == said


def test_quarantined_rows_are_reported_by_reason_with_what_to_do() -> None:
    reasons = [
        "noisy: the median is uncertain by 20 %, limit 15 %",
        "other processes took 30 % of the CPU, limit 10 %",
        "other processes took 12 % of the CPU, limit 10 %",
        "faster than the physical bound: 1 µs, at peak 2 µs",
    ]
    outcome = SessionOutcome(kept=9, quarantined=Counter(map(kind_of, reasons)), named_left=0, optional_left=0)
    first, *others = _quarantined(outcome)
    assert first.startswith(
        "  2 set aside for load of other processes: run the same command again when the machine is quiet"
    )
    assert sorted(line.partition(" for ")[0] for line in others) == ["  1 set aside"] * 2
    assert any("run the same command again" in line for line in others)
    assert any("hardware file" in line for line in others)
