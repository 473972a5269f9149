"""Tasks whose ranks fail: the call at fault is left out, and the ranks start again for the others."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sampling.call import Call, Request, make_call
from sampling.choosing.tasks import SamplingTask
from sampling.operators.gemm import Gemm
from sampling.ranks.job import Job
from sampling.ranks.launch import RanksFailedError
from sampling.session.run_tasks import SessionOutcome, run_tasks
from sampling.store.journal import append_to_journal, attempting, given_up
from sampling.store.profiles import Manifest
from tests.made_rows import row

MANIFEST = Manifest(profile="test", hardware="cpu", device={"name": "abacus", "cores": 1}, sessions=[{"id": 0}])
CALLS = [Gemm(dtype="fp32", m=m, n=8, k=8) for m in range(1, 7)]
REQUESTS = [Request(call=call, phases=("forward",)) for call in CALLS]


class Ranks:
    """In the place of ranks that time: rows without a clock, and an end in the middle of the `faulty` calls."""

    def __init__(self, faulty: dict[Call, str]) -> None:
        self.faulty = faulty
        self.jobs: list[list[Call]] = []

    def __call__(self, job: Job, meanwhile: Callable[[], None]) -> None:
        calls = [make_call(name, fields) for name, fields, _ in job.requests]
        self.jobs.append(calls)
        for call in calls:
            how = self.faulty.get(call, "")
            with suppress(RuntimeError), attempting(Path(job.directory), call, job.ranks_per_node):
                if how == "killed":
                    self.die(job, call)
                if how == "raises":
                    raise RuntimeError("CUDA error: misaligned address")
                append_to_journal(Path(job.directory), row(call))
            if how == "raises":
                raise RanksFailedError(
                    "sampling", "a rank failed", " (rank 0):\nRuntimeError: CUDA error: misaligned address"
                )

    def die(self, job: Job, call: Call) -> None:
        begun = Path(job.directory, "begun.json").read_bytes()
        raise _Killed(begun)


class _Killed(BaseException):
    """An end that leaves no time for anything."""


def killed(ranks: Ranks) -> Callable[[Job, Callable[[], None]], None]:
    """`ranks`, of which a signal may end one: only their launcher can tell."""

    def run(job: Job, meanwhile: Callable[[], None]) -> None:
        try:
            ranks(job, meanwhile)
        except _Killed as end:
            Path(job.directory, "begun.json").write_bytes(end.args[0])
            raise RanksFailedError("sampling", "a rank failed", " (rank 0 on here, by SIGSEGV):\n====") from None

    return run


def session(directory: Path, ranks: Ranks, budget_s: float = 60.0) -> SessionOutcome:
    tasks = [SamplingTask(busy_ranks=1, requests=REQUESTS, visits=1)]
    return run_tasks(directory, MANIFEST, tasks, budget_s=budget_s, run_job=killed(ranks))


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("raises", "RuntimeError: CUDA error: misaligned address"),
        ("killed", "a rank failed (rank 0 on here, by SIGSEGV)"),
    ],
)
def test_ranks_that_a_call_ended_start_again_without_it(
    how: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = Ranks({CALLS[1]: how, CALLS[4]: how})
    outcome = session(tmp_path, ranks)
    assert outcome.kept == 4
    assert outcome.named_left == 0
    assert ranks.jobs == [CALLS, [*CALLS[2:]], [CALLS[5]]]
    assert given_up(tmp_path) == {(CALLS[1], 1): why, (CALLS[4], 1): why}
    assert capsys.readouterr().err.count(f"which ended its ranks ({why})") == 2
    again = Ranks({})
    session(tmp_path, again)
    assert again.jobs == []


def test_doubtful_rows_are_taken_again_before_the_same_calls_are_timed_at_more_moments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sampling.session.run_tasks.worth_retaking", lambda requests, rows, ranks: requests[:1])
    tasks = [SamplingTask(busy_ranks=1, requests=REQUESTS, visits=visits) for visits in (3, 4)]
    ranks = Ranks({})
    run_tasks(tmp_path, MANIFEST, tasks, budget_s=60.0, run_job=ranks)
    assert ranks.jobs[:2] == [[*CALLS, *CALLS, *CALLS], [CALLS[0]]]
    assert len(ranks.jobs) == 3


def test_ranks_that_fail_by_no_calls_fault_end_the_session(tmp_path: Path) -> None:
    def fail(job: Job, meanwhile: Callable[[], None]) -> None:
        raise RanksFailedError("sampling", "a rank failed")

    tasks = [SamplingTask(busy_ranks=1, requests=REQUESTS, visits=1)]
    with pytest.raises(RanksFailedError):
        run_tasks(tmp_path, MANIFEST, tasks, budget_s=60.0, run_job=fail)


def test_a_call_that_hangs_is_ended_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sampling.session.run_tasks.LONGEST_CALL_S", -1.0)
    jobs: list[int] = []

    def hang(job: Job, meanwhile: Callable[[], None]) -> None:
        jobs.append(len(job.requests))
        begun = Path(job.directory, "begun.json")
        with attempting(Path(job.directory), make_call(*job.requests[0][:2]), 1):
            content = begun.read_bytes()
        begun.write_bytes(content)
        meanwhile()

    tasks = [SamplingTask(busy_ranks=1, requests=REQUESTS, visits=1)]
    outcome = run_tasks(tmp_path, MANIFEST, tasks, budget_s=60.0, run_job=hang)
    assert jobs == [6, 5, 4, 3, 2, 1]
    assert outcome.kept == 0
    assert all("a call took longer" in why for why in given_up(tmp_path).values())


def test_a_busy_rank_count_is_part_of_what_failed(tmp_path: Path) -> None:
    session(tmp_path, Ranks({CALLS[0]: "raises"}))
    two = replace(SamplingTask(busy_ranks=2, requests=REQUESTS, visits=1))
    ranks = Ranks({})
    run_tasks(tmp_path, MANIFEST, [two], budget_s=60.0, run_job=ranks)
    assert ranks.jobs == [CALLS]
