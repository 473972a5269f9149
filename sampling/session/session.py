"""One sampling session: what is missing is timed within the budget, kept row by row, and folded into the store."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from sampling.call import Request
from sampling.choosing.requests import missing
from sampling.collectives.topology import Placement
from sampling.errors import SamplesError, UserError
from sampling.files.disk import naming_the_disk
from sampling.hardware.cluster import hardware_facts
from sampling.hardware.this_device import identify, provenance
from sampling.ranks.job import Job
from sampling.ranks.launch import launch
from sampling.ranks.messages import take_notes
from sampling.store.journal import fold_journal, journal_length
from sampling.store.manifest import Manifest, read_manifest, write_manifest
from sampling.store.tables import iterate_samples, read_samples
from sampling.timing.timer import TimerSettings

GRACE_S = 90.0
"""How long past its budget a worker may take to start, finish its last call and end, before it counts as hung."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """What a session tells while it runs: rows kept and wanted by the present job, and the seconds left to it."""

    label: str
    done: int
    wanted: int
    left_s: float


Tell = Callable[[Progress], None]
RunJob = Callable[[Job, Tell], None]
"""Has ranks time a job, and returns when they are done."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Requests to be timed with `busy_ranks` ranks on each of `nodes`, each at `visits` moments of the session.

    `group` is the placement of the groups that cells run on, where it is not all ranks together. What `fills` the space
    takes an even share of what the rest leaves of the budget.
    """

    busy_ranks: int
    requests: Sequence[Request]
    visits: int
    nodes: int = 1
    group: Placement | None = None
    fills: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Rows kept in this session, those of them quarantined, and wanted phases that the budget did not reach."""

    kept: int
    quarantined: int
    not_reached: int


@contextmanager
def sole_session(directory: Path) -> Iterator[None]:
    """Hold a profile's directory, made if need be, for one session; UserError while another session holds it."""
    with naming_the_disk(directory):
        directory.mkdir(parents=True, exist_ok=True)
    held = os.open(directory, os.O_RDONLY)
    try:
        _lock(held, directory)
        yield
    finally:
        os.close(held)


def _lock(held: int, directory: Path) -> None:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"{directory}: another session is sampling into it; wait for it to end, or use another --profile (PROFILE=…)"
        ) from None


def open_profile(
    directory: Path, *, profile: str, hardware: str, fresh: bool, network: Mapping[str, Any] | None = None
) -> Manifest:
    """The profile's manifest with a new session at its end; rows of an interrupted session are folded in first.

    `network` is the provenance of its collectives: nodes, library, and what steers it.
    Raises SamplesError when the rows there come from another machine. With `fresh` they are set aside instead.
    """
    device = identify(hardware)
    if fresh:
        _set_aside(directory)
    if (directory / "manifest.json").exists():
        manifest = read_manifest(directory)
        if (manifest.hardware, manifest.device) != (hardware, device):
            raise SamplesError(
                f"{directory}: its rows are from {manifest.hardware}, {manifest.device}; this session is on {hardware}, "
                f"{device}; sample under another name (PROFILE=…), or start the profile anew with FRESH=1 or --fresh (the "
                "old rows are set aside, not lost)"
            )
        _fold(directory)
    else:
        manifest = Manifest(profile=profile, hardware=hardware, device=device)
    session = {"id": len(manifest.sessions), "date": time.strftime("%Y-%m-%d"), **provenance()}
    session |= {"timer": asdict(TimerSettings()), "environment": "sampling/environment.py"}
    if network:
        session["network"] = dict(network)
    manifest = replace(manifest, sessions=[*manifest.sessions, session])
    with naming_the_disk(directory / "manifest.json"):
        write_manifest(directory, manifest)
    return manifest


def _fold(directory: Path) -> int:
    """The rows stay in the journal until they are in the tables: a disk that is full loses none."""
    with naming_the_disk(directory):
        return fold_journal(directory)


def _set_aside(directory: Path) -> None:
    """Move all that a profile holds into a directory beside it; its own stays, since this session holds it. The manifest
    goes last, so that rows are never without the machine they are from."""
    if not directory.is_dir():
        return
    contents = sorted(directory.iterdir(), key=lambda path: path.name == "manifest.json")
    aside = directory.with_name(f"{directory.name}.aside-{time.strftime('%Y%m%dT%H%M%S')}")
    for path in contents:
        aside.mkdir(exist_ok=True)
        path.rename(aside / path.name)


def sample(
    directory: Path,
    manifest: Manifest,
    wanted: Sequence[Wanted],
    *,
    budget_s: float,
    tell: Tell,
    run_job: RunJob | None = None,
) -> Outcome:
    """Time what of `wanted` (in order of importance) the store lacks, within `budget_s`.

    Each entry runs as one job; what it leaves of the budget goes to the next, and those that fill the space share evenly.
    `run_job` has ranks that are already there time it; by default each job starts its own on this machine.
    """
    end = time.monotonic() + budget_s
    not_reached = 0
    for index, entry in enumerate(wanted):
        rows = iterate_samples(read_samples(directory))
        lacking = missing(entry.requests, rows, entry.busy_ranks, entry.visits)
        phases = sum(len(request.phases) for request in lacking)
        left_s = end - time.monotonic()
        if not lacking or left_s <= 0:
            not_reached += phases
            continue
        share_s = left_s / sum(later.fills for later in wanted[index:]) if entry.fills else left_s
        try:
            (run_job or run_in_own_processes)(_job(directory, manifest, entry, lacking, share_s), tell)
        finally:
            not_reached += phases - _fold(directory)
            for note in take_notes(directory):
                print(note, file=sys.stderr)
    session = len(manifest.sessions) - 1
    own = [row for row in iterate_samples(read_samples(directory)) if row.session == session]
    return Outcome(kept=len(own), quarantined=sum(bool(row.quarantine) for row in own), not_reached=max(0, not_reached))


class Take(Protocol):
    """What `sample` is: times what is wanted within a budget."""

    def __call__(
        self,
        directory: Path,
        manifest: Manifest,
        wanted: Sequence[Wanted],
        *,
        budget_s: float,
        tell: Tell,
        run_job: RunJob | None = None,
    ) -> Outcome: ...


def _job(directory: Path, manifest: Manifest, entry: Wanted, requests: Sequence[Request], budget_s: float) -> Job:
    return Job(
        directory=str(directory),
        profile=manifest.profile,
        hardware=manifest.hardware,
        cores=manifest.device.get("cores"),
        ranks_per_node=entry.busy_ranks,
        session=len(manifest.sessions) - 1,
        budget_s=budget_s,
        timer=asdict(TimerSettings()),
        requests=[(request.call.NAME, request.call.fields(), list(request.phases)) for request in requests],
        nodes=entry.nodes,
        group=(entry.group.ranks, entry.group.ranks_per_node) if entry.group else None,
    )


def run_in_own_processes(job: Job, tell: Tell) -> None:
    """Run one job in its own processes on this machine, telling its progress from the journal's length."""
    cores = job.cores or os.cpu_count() or 1
    threads = max(1, cores // job.ranks_per_node) if hardware_facts(job.hardware).kind == "cpu" else 0
    now = progress_of(job)
    with tempfile.TemporaryDirectory() as scratch:
        job_file = Path(scratch) / "job.json"
        job_file.write_text(json.dumps(asdict(job)))
        launch(
            ["-m", "sampling.ranks.worker", str(job_file)],
            name=f"sampling on {_label(job)} (rows kept so far stay; run again to go on)",
            processes=job.ranks_per_node,
            threads=threads,
            timeout_s=job.budget_s + GRACE_S,
            watch=lambda: tell(now()),
        )


def progress_of(job: Job) -> Callable[[], Progress]:
    """From the start of a job: how far it is, by the journal's length."""
    wanted = sum(len(phases) for _, _, phases in job.requests)
    end = time.monotonic() + job.budget_s

    def now() -> Progress:
        left_s = max(0.0, end - time.monotonic())
        return Progress(label=_label(job), done=journal_length(Path(job.directory)), wanted=wanted, left_s=left_s)

    return now


def _label(job: Job) -> str:
    on_a_node = f"{job.ranks_per_node} rank{'s' if job.ranks_per_node > 1 else ''}"
    on_nodes = f"{on_a_node} on each of {job.nodes} nodes" if job.nodes > 1 else on_a_node
    return f"{on_nodes}, {job.group[0]} at a time" if job.group else on_nodes
