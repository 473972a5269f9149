"""The tasks of a session, one job after the other: rows go to the journal as they are timed, then into the tables."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from sampling.call import Request
from sampling.choosing.contradictions import worth_retaking
from sampling.choosing.tasks import VISITS_OF_NAMED, SamplingTask, missing
from sampling.command_line import log
from sampling.files.disk import naming_the_disk
from sampling.number_text import plain
from sampling.progress import progress_display
from sampling.ranks.job import Job, RunJob, take_messages
from sampling.ranks.launch import RanksFailedError
from sampling.store.journal import blame, fold_journal, forget_begun, given_up, journal_length, seconds_begun
from sampling.store.paced_rows import write_paces
from sampling.store.profiles import Manifest
from sampling.store.tables import iterate_samples, read_samples
from sampling.timing.row_checks import Quarantine, kind_of
from sampling.timing.timer import LONGEST_CALL_S, TimerSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionOutcome:
    """Rows kept in this session, how many of them are quarantined for which reason, and timings that the budget did not reach."""

    kept: int
    quarantined: Counter[Quarantine]
    named_left: int
    """Timings of the calls of named runs."""
    optional_left: int
    """Timings of shapes that fill the space."""


RETAKEN_SHARE = 0.25
"""Most of the time that named calls leave, by which their doubtful rows are taken again before shapes fill the space, or the same calls
are timed at more moments."""


class Strategy(Protocol):
    """Settings by which a session spends its budget on tasks; `run_tasks` times them in their order."""

    def __call__(
        self, directory: Path, manifest: Manifest, tasks: Sequence[SamplingTask], *, budget_s: float, run_job: RunJob
    ) -> SessionOutcome: ...


def run_tasks(
    directory: Path, manifest: Manifest, tasks: Sequence[SamplingTask], *, budget_s: float, run_job: RunJob
) -> SessionOutcome:
    """Time the rows of `tasks` that the store lacks, in order, within `budget_s`.

    Each task runs as one job. Time that it leaves goes to the next one; tasks that fill the space share it evenly.
    """
    end = time.monotonic() + budget_s
    left: dict[tuple[bool, int, tuple[Request, ...]], int] = {}  # of the last task that has these requests
    retaken = False
    for index, task in enumerate(tasks):
        left_s = end - time.monotonic()
        if (task.fills_space or task.visits > VISITS_OF_NAMED) and not retaken:
            retaken = True
            retake(directory, manifest, tasks[:index], budget_s=RETAKEN_SHARE * left_s, run_job=run_job)
            left_s = end - time.monotonic()
        share_s = left_s / sum(later.fills_space for later in tasks[index:]) if task.fills_space else left_s
        key = task.fills_space, task.busy_ranks, tuple(task.requests)
        left[key] = _run_task(directory, manifest, task, share_s, run_job)
    session = len(manifest.sessions) - 1
    own = [row for row in iterate_samples(read_samples(directory)) if row.session == session]
    return SessionOutcome(
        kept=len(own),
        quarantined=Counter(kind_of(row.quarantine) for row in own if row.quarantine),
        named_left=sum(max(0, count) for (optional, *_), count in left.items() if not optional),
        optional_left=sum(max(0, count) for (optional, *_), count in left.items() if optional),
    )


def retake(
    directory: Path, manifest: Manifest, tasks: Sequence[SamplingTask], *, budget_s: float, run_job: RunJob
) -> None:
    """Time the doubtful rows of tasks again, one time each, within `budget_s`."""
    end = time.monotonic() + budget_s
    for task in tasks:
        _run_task(directory, manifest, task, end - time.monotonic(), run_job, again=True)


def _run_task(
    directory: Path, manifest: Manifest, task: SamplingTask, budget_s: float, run_job: RunJob, *, again: bool = False
) -> int:
    """Time a task in one job, and in another without the call at fault for each that ends a job; the timings that are left.

    With `again`, the rows that `worth_retaking` finds doubtful are taken again.
    """
    end = time.monotonic() + budget_s
    while True:
        faulty = given_up(directory)
        rows = list(iterate_samples(read_samples(directory)))
        if again:
            lacking = worth_retaking(task.requests, rows, task.busy_ranks)
        else:
            lacking = missing(task.requests, rows, task.busy_ranks, task.visits)
        lacking = [request for request in lacking if (request.call, task.busy_ranks) not in faulty]
        phases = sum(len(request.phases) for request in lacking)
        left_s = end - time.monotonic()
        if not lacking or left_s <= 0:
            return phases
        job = _job(directory, manifest, task, lacking, left_s)
        try:
            return phases - _run(directory, manifest, job, phases, run_job)
        except RanksFailedError as error:
            blame(directory, error.how)
            new = {key: why for key, why in given_up(directory).items() if key not in faulty}
            if not new:
                raise
            for (call, _), why in new.items():
                log(f"left out from now on: {call}, which ended its ranks ({why})")


def _run(directory: Path, manifest: Manifest, job: Job, phases: int, run_job: RunJob) -> int:
    """Run a job and fold its rows into the tables; returns how many."""

    def watch() -> None:
        show(journal_length(directory), phases, "")
        if seconds_begun(directory) > LONGEST_CALL_S:
            raise RanksFailedError(f"sampling on {job.label}", f"a call took longer than {plain(LONGEST_CALL_S)} s")

    folded = 0
    try:
        with progress_display(f"sampling, {job.label}", job.budget_s) as show:
            run_job(job, watch)
    except KeyboardInterrupt:
        forget_begun(directory)
        raise
    finally:
        # rows stay in the journal until they are in the tables, so that a full disk loses none
        with naming_the_disk(directory):
            folded = fold_journal(directory)
            write_paces(directory, manifest)
        for message in take_messages(directory):
            log(message)
    return folded


def _job(directory: Path, manifest: Manifest, task: SamplingTask, requests: Sequence[Request], budget_s: float) -> Job:
    return Job(
        directory=str(directory),
        profile=manifest.profile,
        hardware=manifest.hardware,
        cores=manifest.device.get("cores"),
        ranks_per_node=task.busy_ranks,
        session=len(manifest.sessions) - 1,
        budget_s=budget_s,
        timer=asdict(TimerSettings()),
        requests=[(request.call.NAME, request.call.fields(), list(request.phases)) for request in requests],
        nodes=task.nodes,
        group=(task.group.ranks, task.group.ranks_per_node) if task.group else None,
    )
