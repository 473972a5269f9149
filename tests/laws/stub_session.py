"""A session for tests that kill it: its lock, its launch and its journal are the real ones, torchrun and torch are not there.

stub_session.py session FOLDER NUMBER      locks FOLDER and launches two ranks, by way of
stub_session.py agent … rank FOLDER NUMBER   in the place of torchrun
stub_session.py rank FOLDER NUMBER         rank 0 keeps rows as fast as it can, and notes in kept-NUMBER which are safe

Each process leaves its id in FOLDER/pids.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from sampling.ranks import launch as launch_module
from sampling.ranks.launch import LAUNCHER, die_with_launcher, launch

# each process imports what it needs itself, so that sessions start in a moment

MOST_ROWS = 100_000


def session(folder: Path, number: str) -> None:
    from sampling.session.profile import profile_lock

    launch_module.AGENT = (__file__, "agent")
    with profile_lock(folder / "profile") as lock:
        launch(["rank", str(folder), number], name="stub", processes=2, threads=1, timeout_s=60, lock=lock)


def agent(folder: Path, number: str) -> None:
    die_with_launcher()
    os.environ[LAUNCHER] = str(os.getpid())
    command = [sys.executable, __file__, "rank", str(folder), number]
    ranks = [subprocess.Popen(command, env={**os.environ, "RANK": str(rank)}) for rank in range(2)]
    while all(rank.poll() is None for rank in ranks):
        time.sleep(0.01)
    for rank in ranks:
        rank.kill()
    sys.exit(1)


def rank(folder: Path, number: str) -> None:
    die_with_launcher()
    if os.environ["RANK"] != "0":
        signal.pause()
    from sampling.operators.gemm import Gemm
    from sampling.store.journal import append_to_journal
    from sampling.store.sample import Sample

    measured = {"time_us": 1.0, "low_us": 1.0, "high_us": 1.0, "repeats": 3, "quarantine": "", "session": int(number)}
    with (folder / f"kept-{number}").open("a", buffering=1) as kept:
        for row in range(1, MOST_ROWS):
            call = Gemm(dtype="fp32", m=row, n=1, k=1)
            sample = Sample(call=call, phase="forward", threads=1, busy_ranks=2, **measured)  # type: ignore[arg-type]
            append_to_journal(folder / "profile", sample)
            kept.write(f"{row}\n")
            time.sleep(0.001)


if __name__ == "__main__":
    role, *_, folder, number = sys.argv[1:]
    name = role + os.environ.get("RANK", "")
    Path(folder, "pids", f"{name}-{number}").write_text(str(os.getpid()))
    {"session": session, "agent": agent, "rank": rank}[role](Path(folder), number)
