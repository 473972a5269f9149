"""Launching ranks: a rank that dies, ranks that hang."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from sampling.errors import UserError
from sampling.ranks.launch import LOCAL_ADDRESS, environment, failure, launch, rank_environment

SCRIPT = str(Path(__file__).with_name("failing_rank.py"))


def assert_ended(folder: Path, ranks: int) -> None:
    pids = [int(path.read_text()) for path in folder.iterdir()]
    assert len(pids) == ranks
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.usefixtures("starts_warm")
def test_a_dying_rank_is_an_error_with_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"(?s)doomed: a rank failed \(rank 1\):.*the weights turned to lead"):
        launch([SCRIPT, str(tmp_path), "fails"], name="doomed", processes=2, threads=1, timeout_s=60)
    assert_ended(tmp_path, ranks=2)


def test_the_report_of_a_rank_that_was_ended_while_it_wrote_it_is_passed_over(tmp_path: Path) -> None:
    for rank, report in enumerate(('{"message": {"mess', '{"message": {"message": "UserError: lead"}}')):
        folder = tmp_path / "ranks" / str(rank)
        folder.mkdir(parents=True)
        (folder / "error.json").write_text(report)
    assert failure(tmp_path) == " (rank 1):\nlead"


@pytest.mark.usefixtures("starts_warm")
def test_ranks_that_hang_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monotonic, start = time.monotonic, time.monotonic()

    def late_once_all_ranks_run() -> float:
        return monotonic() if len(list(tmp_path.iterdir())) < 2 else start + 1000.0

    monkeypatch.setattr("sampling.ranks.launch.time.monotonic", late_once_all_ranks_run)
    with pytest.raises(UserError, match="stuck: its ranks were not done after 60 s"):
        launch([SCRIPT, str(tmp_path), "hangs"], name="stuck", processes=2, threads=1, timeout_s=60)
    assert_ended(tmp_path, ranks=2)


@pytest.mark.usefixtures("starts_warm")
def test_an_interrupt_ends_the_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = subprocess.Popen.wait

    def interrupted_once(self: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        assert {"--local-addr", LOCAL_ADDRESS} <= {*self.args}, "where the host name has no address too"  # type: ignore[misc]
        monkeypatch.setattr(subprocess.Popen, "wait", wait)
        while len(list(tmp_path.iterdir())) < 2:
            with pytest.raises(subprocess.TimeoutExpired):
                wait(self, 0.05)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        launch([SCRIPT, str(tmp_path), "hangs"], name="stuck", processes=2, threads=1, timeout_s=60)
    assert_ended(tmp_path, ranks=2)


def test_ranks_get_their_share_of_threads_before_python_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    assert environment(3)["OMP_NUM_THREADS"] == "3"
    assert rank_environment(3).items() <= environment(3).items()
    assert "OMP_NUM_THREADS" not in rank_environment(0)
