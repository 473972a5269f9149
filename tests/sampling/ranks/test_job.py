"""A job on this machine: its budget counts from the start of its processes."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sampling.operators.gemm import Gemm
from sampling.ranks import job as local
from sampling.ranks.job import END_S, START_S, run_on_local_ranks
from sampling.ranks.worker import ALONE, run_job
from tests.sampling.ranks.rank_jobs import job_of, kept

CALL = Gemm(dtype="fp32", m=8, n=8, k=8)


def launched_jobs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    jobs: list[dict[str, float]] = []

    def launch(worker: Sequence[str], **_: object) -> None:
        jobs.append(json.loads(Path(worker[-1]).read_text()))

    monkeypatch.setattr(local, "launch", launch)
    return jobs


def test_start_and_end_of_the_processes_are_part_of_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = launched_jobs(monkeypatch)
    before_s = time.monotonic()
    run_on_local_ranks(replace(job_of(tmp_path, 1, CALL), budget_s=50.0), lambda: None)
    assert before_s <= jobs[0]["deadline_s"] - 50.0 + END_S <= time.monotonic()


def test_a_job_that_would_only_start_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = launched_jobs(monkeypatch)
    run_on_local_ranks(replace(job_of(tmp_path, 1, CALL), budget_s=0.9 * START_S), lambda: None)
    assert jobs == []


@pytest.mark.parametrize(("after_s", "rows"), [(-1.0, 0), (100.0, len(CALL.PHASES))])
def test_a_rank_begins_nothing_after_the_deadline(after_s: float, rows: int, tmp_path: Path) -> None:
    run_job(replace(job_of(tmp_path, 1, CALL), deadline_s=time.monotonic() + after_s), ALONE, None)
    assert len(kept(tmp_path)) == rows
