"""Spend N minutes of one GPU on rows: `python3 -m sampling.gpu_session --minutes 10 --out DIR`.

plan        probes, one call of every kind, calls of named runs, drawn calls    session/gpu_plan.py
workers     a process with the device times them; then real training steps      session/gpu_run.py, session/gpu_worker.py
archive     every row and event is on the disk before the session goes on       session/archive.py
rehearsal   all of it over a fake device and clock                              session/rehearsal.py
"""

from __future__ import annotations

from sampling import early_interrupt  # noqa: F401

# isort: split
import argparse
import json
import math
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sampling.arguments import Parser
from sampling.command_line import exit_code_of
from sampling.errors import ConfigError, UserError

if TYPE_CHECKING:
    from sampling.session.gpu_worker import WorkerSettings

DESCRIPTION = """\
Spend a few minutes of one CUDA or ROCm GPU on rows, the most informative first: probes, one call of every kind, the calls of
named runs, drawn calls, then real training steps. It needs torch and numpy, and nothing else.

Every row is on the disk before the next call begins. A session that was killed goes on where it was when the command is given
again, on this machine or on another one with the same kind of GPU and a copy of the archive.
"""
EXAMPLES = """\
examples:
  python3 -m sampling.gpu_session --dry-run                        # the plan and its seconds, rehearsed without a GPU
  python3 -m sampling.gpu_session --minutes 10 --out gpu-session
  python -m sampling import-archive gpu-session                    # afterwards, on any machine
"""
POLL_S = 0.5


def parser() -> argparse.ArgumentParser:
    from sampling.timing.timer import PRESETS

    made = Parser(
        prog="python3 -m sampling.gpu_session",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add(
        "--minutes",
        type=float,
        default=10.0,
        metavar="N",
        help="time to spend, start-up included (default: %(default)g)",
    )
    add("--out", type=Path, metavar="DIR", help="folder of the archive (default: $OUT, else gpu-session)")
    add("--calls", type=Path, metavar="FILE", help="calls of named runs, from `predict calls`")
    add(
        "--steps",
        type=Path,
        metavar="FILE",
        help="real steps: a JSON file of commands (default: configs/sampling/gpu-steps.json)",
    )
    add("--models", type=int, default=64, help="models that calls are drawn from (default: %(default)s)")
    add("--timer", choices=sorted(PRESETS), default="quick", help="how long each call is timed (default: %(default)s)")
    add("--compile", action="store_true", help="time compiled calls too, which takes a minute each to build")
    add("--hardware", metavar="NAME", help="entry of configs/hardware (default: detected; h200 for a rehearsal)")
    add(
        "--dry-run",
        action="store_true",
        help="rehearse over a fake device and clock, and print the plan with its seconds",
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the session, or rehearse it, as the command line says; the exit code. What takes long to import is imported in it, where Ctrl-C
    ends the command in words."""

    def session() -> int:
        options = parser().parse_args(arguments)
        check_options(options)
        require_torch()
        if options.dry_run:
            from sampling.session.rehearsal import dry_run

            print(dry_run(options))
        else:
            run(options)
        return 0

    return exit_code_of(
        session, interrupted="interrupted: what was timed so far is kept; the same command goes on from here"
    )


def check_options(options: argparse.Namespace) -> None:
    """ConfigError for a number that is out of range."""
    from sampling.number_text import as_given

    if not 0 < options.minutes < math.inf:
        raise ConfigError(
            f"--minutes: {as_given(options.minutes)} is not a positive, finite number of minutes; give for example 10"
        )
    if options.models < 0:
        raise ConfigError(f"--models: {options.models} is not a number of models; give 0 or more")


def require_torch() -> None:
    """UserError where this Python lacks what a session needs."""
    if missing := [name for name in ("torch", "numpy") if find_spec(name) is None]:
        raise UserError(
            f"{sys.executable} has no {' and no '.join(missing)}; take a Python that has both, such as the one that trains on this "
            "GPU: `PYTHON -m sampling.gpu_session`, or `make gpu-session PYTHON=…`"
        )


def run(options: argparse.Namespace) -> None:
    """A session on this machine's device."""
    from sampling.files.disk import naming_the_disk
    from sampling.session.archive import CALLS, archive_lock, read_facts
    from sampling.session.gpu_run import call_limit_s, read_steps, run_step, spend
    from sampling.session.gpu_worker import WorkerSettings

    start_s = time.monotonic()
    budget_s = 60 * options.minutes
    out = (options.out or Path(os.environ.get("OUT") or "gpu-session")).absolute()
    steps = read_steps(options.steps, on_cpu=options.hardware == "cpu")
    with archive_lock(out) as lock:
        if options.calls:
            with naming_the_disk(out):
                shutil.copyfile(options.calls, out / CALLS)
        settings = partial(
            WorkerSettings,
            out=str(out),
            hardware=options.hardware or "",
            calls=str(out / CALLS) if (out / CALLS).is_file() else "",
            models=options.models,
            compiled=options.compile,
            timer=options.timer,
            token=secrets.token_hex(8),
        )
        limit_s = call_limit_s(budget_s, compiled=options.compile)
        log = spend(
            out,
            steps,
            until_s=start_s + budget_s,
            now_s=time.monotonic,
            work=lambda until_s: start_worker(settings(until_s=until_s), out, lock, limit_s),
            run_step=lambda step, left_s: run_step(step, left_s, hardware=read_facts(out).hardware),
        )
    print(f"{log.progress.summary()} in {out}; next: python -m sampling import-archive {out}")


def start_worker(settings: WorkerSettings, out: Path, lock: int, limit_s: float) -> int:
    """Run a worker and wait for it; its exit code. A worker that runs on after the session is killed, and so is one that writes no
    event for `limit_s`, whose code is TOO_SLOW. Before its first event it may take LONGEST_CALL_S, to import torch and to open the
    device."""
    from sampling.ranks.launch import environment
    from sampling.session.gpu_run import LAST_CALL_S, LEAVING_S, TOO_SLOW
    from sampling.timing.timer import LONGEST_CALL_S

    command = [sys.executable, "-m", "sampling.session.gpu_worker", json.dumps(asdict(settings))]
    latest_s = settings.until_s + LAST_CALL_S + LEAVING_S
    with subprocess.Popen(command, env=environment(0), pass_fds=(lock,)) as worker:
        try:
            size, give_up_s = _size(out), time.monotonic() + LONGEST_CALL_S
            while worker.poll() is None:
                time.sleep(POLL_S)
                written = _size(out)
                if written != size:
                    size, give_up_s = written, time.monotonic() + limit_s
                if time.monotonic() > latest_s:
                    worker.kill()
                elif time.monotonic() > give_up_s:
                    return TOO_SLOW
        finally:
            worker.kill()
    return worker.returncode


def _size(archive: Path) -> int:
    from sampling.session.archive import parts

    return sum(path.stat().st_size for path in parts(archive))


if __name__ == "__main__":
    sys.exit(main())
