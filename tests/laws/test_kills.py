"""Kills of sessions, of torchrun and of ranks: nobody is left behind, no one else gets in before, and no finished row is lost."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sampling.errors import UserError
from sampling.ranks.launch import LAUNCHER, ROOT
from sampling.session.profile import profile_lock
from sampling.store.journal import JOURNAL, journal_length
from tests.sampling.ranks.rank_jobs import kept
from tests.sampling.small_sessions import arguments_in

STUB = str(Path(__file__).with_name("stub_session.py"))
KILLS = [
    ("session", signal.SIGKILL),
    ("session", signal.SIGTERM),
    ("agent", signal.SIGKILL),
    ("rank0", signal.SIGKILL),
    ("rank1", signal.SIGKILL),
]
ROLES = ("session", "agent", "rank0", "rank1")
PATIENCE_S = 60.0


def wait_for(true: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def has_text(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def lives(pid: int) -> bool:
    """Whether the process runs: one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children(pid: int) -> Iterator[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended since
            found += map(int, thread.read_text().split())
    for child in found:
        yield child
        yield from children(child)


def wait_for_lock(profile: Path, held: Callable[[], None]) -> None:
    """Call `held` as soon as another session gets in."""

    def got_in() -> bool:
        with suppress(UserError), profile_lock(profile):
            held()
            return True
        return False

    wait_for(got_in)


def test_kills_leave_nobody_behind_and_lose_no_finished_row(tmp_path: Path) -> None:
    profile, scratch = tmp_path / "profile", tmp_path / "scratch"
    for folder in (profile, scratch, tmp_path / "pids"):
        folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)}
    finished: set[tuple[int, int]] = set()
    for number, (victim, how) in enumerate(KILLS):
        folders = len(list(scratch.iterdir()))
        command = [sys.executable, STUB, "session", str(tmp_path), str(number)]
        session = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        safe = tmp_path / f"kept-{number}"
        ids = {role: tmp_path / "pids" / f"{role}-{number}" for role in ROLES}
        started = [safe, *ids.values()]
        wait_for(lambda started=started: all(map(has_text, started)))  # type: ignore[misc]
        pids = {role: int(path.read_text()) for role, path in ids.items()}
        os.kill(pids[victim], how)

        def nobody_writes(pids: dict[str, int] = pids) -> None:
            rows = journal_length(profile)
            wait_for(lambda: not any(lives(pids[role]) for role in ROLES[1:]))
            assert journal_length(profile) == rows

        wait_for_lock(profile, nobody_writes)
        assert session.wait(PATIENCE_S) != 0
        finished |= {(number, int(row)) for row in safe.read_text().split()}
        if (victim, how) != ("session", signal.SIGKILL):
            assert len(list(scratch.iterdir())) <= folders
    rows = [(row.session, row.call.m) for row in kept(profile)]  # type: ignore[attr-defined]
    assert finished <= set(rows)
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize("role", ["rank", "agent"])
def test_a_process_whose_launcher_died_before_it_could_ask_ends(role: str, tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), LAUNCHER: "1", "RANK": "0"}
    command = [sys.executable, STUB, role, str(tmp_path), "0"]
    assert subprocess.run(command, env=environment, timeout=PATIENCE_S, check=False).returncode == 1
    assert not (tmp_path / "kept-0").exists()


def test_a_killed_session_on_real_ranks_takes_them_with_it(tmp_path: Path) -> None:
    arguments = [*arguments_in(tmp_path), "--models", "2", "--budget", "60"]
    profile = tmp_path / "samples" / "test"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "sampling", *arguments]
    session = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_for(lambda: (profile / JOURNAL).is_file() and journal_length(profile) > 0)
    started = list(children(session.pid))
    timed = journal_length(profile)
    session.kill()
    wait_for_lock(profile, lambda: None)
    session.wait()
    assert len(started) >= 3
    wait_for(lambda: not any(map(lives, started)))
    assert len(kept(profile)) >= timed
