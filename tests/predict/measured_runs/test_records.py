"""Recorded jobs: what is kept, and the posterior of the next job's failures."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from predict import load
from predict.ledger.job_settings import JobSettings, job_settings
from predict.ledger.whole_job import checkpoint_bytes, load_hours
from predict.measured_runs.records import (
    JobRecord,
    MeasuredJob,
    learnt,
    measured_job,
    posterior_rate,
    record_job,
    recorded_jobs,
)
from sampling.errors import SamplesError, UserError
from sampling.files.places import CONFIGS
from tests.predict.command import Command

RUN = CONFIGS / "runs" / "llama3-70b-64xh100.yml"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPTIME_DATA", str(tmp_path))
    return tmp_path


def recorded(**measured: Any) -> JobRecord:
    return JobRecord(
        cluster="pod", run="run", date="2026-03-01", gpus=64, checkpoint_gb=1000, measured=MeasuredJob(**measured)
    )


def test_nothing_seen_leaves_the_prior() -> None:
    median, width = posterior_rate(JobSettings(), hours=0, failures=0)
    assert 1 / median == pytest.approx(50_000, rel=1e-3)
    assert width == pytest.approx(math.log(3.7), rel=1e-2)


def test_many_failures_leave_their_own_rate_with_the_width_of_their_number() -> None:
    median, width = posterior_rate(JobSettings(), hours=2e6, failures=400)
    assert 1 / median == pytest.approx(5000, rel=0.02)
    assert width == pytest.approx(1.645 / 20, rel=0.05)


def test_a_few_failures_lie_between_and_none_lower_the_rate() -> None:
    few, _ = posterior_rate(JobSettings(), hours=100_000, failures=8)
    none, _ = posterior_rate(JobSettings(), hours=100_000, failures=0)
    assert 12_500 < 1 / few < 50_000 < 1 / none


def test_restarts_and_saves_are_taken_as_measured() -> None:
    jobs = [recorded(hours=500, failures=4, restart_min=20, save_s=50), recorded(hours=100, failures=1, restart_min=30)]
    found = learnt(JobSettings(compile_min=2), jobs, load(RUN))
    loading = 1000 / 20 / 60
    assert found.detect_min == 0
    assert found.restart_min == pytest.approx(25 - 2 - loading)
    assert found.storage_gb_per_s == 20
    assert found.failure_factor < JobSettings().failure_factor


def test_a_measured_restart_holds_loading_and_compilation_already() -> None:
    run = load(RUN)
    job = JobRecord(
        cluster="pod",
        run="run",
        date="2026-03-01",
        gpus=64,
        checkpoint_gb=checkpoint_bytes(run) / 1e9,
        measured=MeasuredJob(hours=500, failures=4, restart_min=20),
    )
    given = JobSettings(compile_min=4)
    found = learnt(given, [job], run)
    again = found.restart_min + found.compile_min + 60 * load_hours(run, found, checkpoint_bytes(run))
    assert again == pytest.approx(20)
    assert learnt(replace(given, compile_min=30), [job], run).restart_min == 0


def test_a_rate_that_is_given_as_known_learns_nothing() -> None:
    with pytest.raises(UserError, match="omit it, or give its failure_factor"):
        learnt(job_settings(["gpu_hours_a_failure=9000"]), [recorded(hours=1, failures=0)], load(RUN))


def test_a_job_is_kept_once_and_found_again(data: Path) -> None:
    measured = measured_job(["hours=300.5", "failures=3"])
    first = record_job(RUN, measured=measured, cluster="pod", date="2026-03-01")
    assert record_job(RUN, measured=measured, cluster="pod", date="2026-03-01") == first
    (found,) = recorded_jobs("pod")
    assert (found.measured, found.gpus) == (measured, 64)
    assert found.checkpoint_gb == checkpoint_bytes(load(RUN)) / 1e9


def test_no_jobs_and_damaged_ones_are_refused(data: Path) -> None:
    with pytest.raises(SamplesError, match="no job of pod is recorded"):
        recorded_jobs("pod")
    record_job(RUN, measured=measured_job(["hours=300", "failures=3"]), cluster="pod").write_text("{}")
    with pytest.raises(SamplesError, match="record the job anew"):
        recorded_jobs("pod")


@pytest.mark.parametrize(
    ("texts", "fault"),
    [
        (["hours=10"], "failures: missing"),
        (["hours=-1", "failures=1"], "hours: -1 is out of range"),
        (["hours", "failures=1"], "has no value"),
        (["hours=1", "failures=1", "save=3"], "did you mean 'save_s'"),
    ],
)
def test_a_wrong_figure_is_named(texts: list[str], fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        measured_job(texts)


def test_the_commands_keep_a_job_and_take_it(data: Path, command: Command) -> None:
    of_job = ("--job", "hours=20000", "--job", "failures=400")
    assert "wrote" in command.notes("record", str(RUN), *of_job, "--cluster", "pod")
    found = command.json("job", str(RUN), "--tokens", "1T", "--recorded", "pod")
    assert found["hours_between_failures"] == pytest.approx(50, rel=0.1)
    assert "--log: cannot be combined with --job" in command.refused("record", str(RUN), *of_job, "--log", "3s")
