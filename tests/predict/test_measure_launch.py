"""Launching ranks: a real measurement, a rank that dies, ranks that hang."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from measure_variants import tiny_run

from predict.measure.launch import environment, launch
from predict.measure.real_step import measure, measure_interleaved
from predict.workload.plan import Plan
from sampling.environment import rank_environment
from sampling.errors import UserError

SCRIPT = str(Path(__file__).with_name("measure_failing_rank.py"))


def assert_ended(folder: Path, ranks: int) -> None:
    pids = [int(path.read_text()) for path in folder.iterdir()]
    assert len(pids) == ranks
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_measures_in_rounds_and_tells_of_them() -> None:
    told: list[str] = []
    (result,) = measure_interleaved([tiny_run(Plan(pp=2))], rounds=1, steps_per_round=4, warmup=1, progress=told.append)
    assert len(told) == 1
    assert told[0].startswith("round 1/1: tiny llama-like ")
    assert len(result.step_times_us) == 4
    assert len(result.losses) == 5
    assert result.losses[-1] < result.losses[0] - 0.05
    assert result.p10_us <= result.median_us <= result.p90_us
    assert result.threads == 1
    assert len(result.parameters_per_rank) == 2
    assert result.tokens_per_s == pytest.approx(8 * 16 / (result.median_us / 1e6))


def test_a_dying_rank_is_an_error_with_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"(?s)doomed: a rank failed \(rank 1\):.*the weights turned to lead"):
        launch([SCRIPT, str(tmp_path), "fails"], name="doomed", processes=2, threads=1, timeout_s=60)
    assert_ended(tmp_path, ranks=2)


def test_ranks_that_hang_are_ended(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="stuck: its ranks were not done after 8 s"):
        launch([SCRIPT, str(tmp_path), "hangs"], name="stuck", processes=2, threads=1, timeout_s=8)
    assert_ended(tmp_path, ranks=2)


def test_an_interrupt_ends_the_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    wait = subprocess.Popen.wait

    def interrupted_once(self: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        monkeypatch.setattr(subprocess.Popen, "wait", wait)
        while len(list(tmp_path.iterdir())) < 2:
            with pytest.raises(subprocess.TimeoutExpired):
                wait(self, 0.05)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        launch([SCRIPT, str(tmp_path), "hangs"], name="stuck", processes=2, threads=1, timeout_s=60)
    assert_ended(tmp_path, ranks=2)


def test_a_run_that_cannot_be_measured_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("launched")

    monkeypatch.setattr("predict.measure.real_step.launch", refuse)
    with pytest.raises(UserError, match=r"plan\.cp: 2 is not measured"):
        measure(tiny_run(Plan(cp=2)))


def test_ranks_get_their_share_of_threads_before_python_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    assert environment(3)["OMP_NUM_THREADS"] == "3"
    assert rank_environment(3).items() <= environment(3).items()
    assert "OMP_NUM_THREADS" not in rank_environment(0)
