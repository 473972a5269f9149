"""Start ranks with torchrun in a clean environment, wait for them, and leave none behind.

    python -m sampling.ranks.launch ARGUMENTS OF TORCHRUN…

is torchrun as `launch` starts it: it dies with the process that started it, and its ranks die with it.
"""

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from sampling.command_line import sigterm_interrupts
from sampling.errors import UserError
from sampling.extras import require_library
from sampling.files.disk import scratch_folder
from sampling.number_text import plain

ROOT = Path(__file__).resolve().parents[2]
TAIL_LINES = 15
POLL_S = 0.3
STOP_S = 40.0
"""torchrun gives its ranks 30 s to end (torch.distributed.elastic, `PContext.close`) before it kills them."""
AGENT = ("-m", "sampling.ranks.launch")
BOUND = ("-m", "sampling.ranks.bound")
LOCAL_ADDRESS = "127.0.0.1"
"""Where ranks of one machine meet. Without it torchrun asks for the address of the host name, which need not resolve."""
PR_SET_PDEATHSIG = 1  # linux/prctl.h
LAUNCHER = "STEPTIME_LAUNCHER"
"""Environment variable: id of the process that an agent, or a rank of an agent of ours, must not outlive."""
RELAYED = "relayed: "
"""Prefix of a report that only relays the end of another rank."""
ENDED = re.compile(r"host +: (\S+)\n +rank +: (\d+) .*\n +exitcode +: -(\d+) ")
"""Entry of torchrun's report (torch.distributed.elastic, `ChildFailedError`)."""


class RanksFailedError(UserError):
    """Ranks that failed, or were not done in time; another launch may do better. `how` is the end in a line."""

    def __init__(self, name: str, how: str, details: str = "") -> None:
        super().__init__(f"{name}: {how}{details}")
        first, _, _ = details.partition("\n")
        self.how = how + first.removesuffix(":")


def launch(
    worker: Sequence[str],
    *,
    name: str,
    processes: int,
    threads: int,
    timeout_s: float,
    meanwhile: Callable[[], None] = lambda: None,
    lock: int | None = None,
) -> None:
    """Run `worker` (`-m MODULE ARGUMENTS…` or `SCRIPT ARGUMENTS…`) on `processes` ranks of `threads` threads each, on cores of their own
    (`sampling.hardware.cores`).

    `meanwhile` is called every POLL_S seconds. Raises RanksFailedError, which begins with `name`, with the first failed
    rank's last lines, or when `timeout_s` have passed. No rank outlives this call, even after an interrupt or a SIGTERM, nor
    this process if it is killed. `lock` is the descriptor of a lock that must hold as long as any rank lives.
    """
    require_library("torch")
    with scratch_folder("ranks") as logs, sigterm_interrupts():
        command = [
            *(sys.executable, *AGENT, "--standalone", "--local-addr", LOCAL_ADDRESS),
            *("--nproc-per-node", str(processes), "--log-dir", str(logs / "ranks"), "--redirects", "3"),
            *(BOUND if threads else ()),
            *worker,
        ]
        with (logs / "agent.log").open("wb") as log:
            # In a session of its own, so that an interrupt reaches the ranks through `stop` alone. Of all descriptors, torchrun
            # hands on to its ranks only the standard ones: the lock is their stdin, which they do not read.
            agent = subprocess.Popen(
                command,
                env=environment(threads),
                stdin=subprocess.DEVNULL if lock is None else lock,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                exit_code = _wait(agent, timeout_s, meanwhile)
            except subprocess.TimeoutExpired:
                stop(agent)
                raise RanksFailedError(
                    name, f"its ranks were not done after {plain(timeout_s)} s", failure(logs)
                ) from None
            finally:
                stop(agent)
        if exit_code:
            raise RanksFailedError(name, "a rank failed", failure(logs))


def _wait(agent: subprocess.Popen[bytes], timeout_s: float, meanwhile: Callable[[], None]) -> int:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        meanwhile()
        try:
            return agent.wait(POLL_S)
        except subprocess.TimeoutExpired:
            continue
    raise subprocess.TimeoutExpired(agent.args, timeout_s)


def rank_environment(threads: int) -> dict[str, str]:
    """The variables to set before Python starts, since OpenMP and glibc read them at start-up alone.

    Samples describe a step only if both ran in the same environment, so every launcher of ranks adds these to its own.
    `threads` is a rank's share of the cores; 0 (a rank on a GPU) leaves the thread count as it is.

    - `OMP_NUM_THREADS`: ranks on one machine share its cores; by default each would use all of them.
    - `OMP_WAIT_POLICY`, `GOMP_SPINCOUNT`: a thread that waits at the end of a parallel region sleeps. Spinning takes
      the core from the other ranks and makes steps several times slower wherever cores are shared.
    - `MALLOC_*`: freed memory stays with the process. Otherwise every large tensor is mapped and unmapped again, and
      page faults dominate the small operators; with these variables a step causes none after a few warm-up steps. The
      trim threshold is beyond any tensor (16 GB), the pad grows the heap in few, large (256 MiB) strides.
    """
    environment = {
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "0",
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": "16000000000",
        "MALLOC_TOP_PAD_": "268435456",
    }
    return {"OMP_NUM_THREADS": str(threads), **environment} if threads else environment


def environment(threads: int) -> dict[str, str]:
    """This process's environment with what a rank needs set before its Python starts."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, **rank_environment(threads), "PYTHONPATH": path, LAUNCHER: str(os.getpid())}


def stop(agent: subprocess.Popen[bytes]) -> None:
    """End torchrun, which ends its ranks; if it does not in time, kill it, and the ranks die with it."""
    if agent.poll() is None:
        agent.terminate()
        try:
            agent.wait(STOP_S)
        except subprocess.TimeoutExpired:
            agent.kill()
            agent.wait()


def die_with_launcher() -> None:
    """Called by a rank: have the kernel kill this process if torchrun dies without ending it, or end here if it is dead already.

    Called by our agent of torchrun: the same for the process that launched it.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    launcher = os.environ.get(LAUNCHER)
    if launcher and os.getppid() != int(launcher):
        os._exit(1)


def leave(exit_code: int = 0) -> NoReturn:
    """Called by a rank at its very end, after its output is written and its process group is destroyed.

    It skips the teardown of the interpreter, in which gloo threads that still run sometimes abort the process ("terminate
    called without an active exception"); torchrun would take that for a failed run.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def failure(logs: Path) -> str:
    """The last lines of the first failure, to be appended to a message; "" if none was written."""
    # A rank whose peer died fails later than the peer: the oldest error file is the cause, unless it only relays one.
    paths = sorted(logs.glob("ranks/**/error.json"), key=lambda path: path.stat().st_mtime_ns)
    reports = [(path.parent.name, found) for path in paths if (found := _reported(path))]
    for rank, message in reports:
        if not message["message"].startswith(RELAYED):
            return f" (rank {rank}):\n{_message_of(message)}"
    if reports:
        return f": {reports[0][1]['message'].removeprefix(RELAYED)}"
    # A rank that a signal ended leaves no report: show how torchrun saw it end, and what the ranks printed.
    outputs = [*sorted(logs.glob("ranks/**/stderr.log")), logs / "agent.log"]
    printed = [tail(output.read_text(errors="replace")) for output in outputs]
    ended = _ended_by_signal((logs / "agent.log").read_text(errors="replace")) if any(printed) else ""
    return "".join([f"{ended}:", *(f"\n{text}" for text in printed if text)]) if any(printed) else ""


def _reported(path: Path) -> dict[str, Any] | None:
    """The report of a rank; None where it was ended while it wrote it."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())["message"]
    except (ValueError, LookupError):
        return None
    return found


def _message_of(message: dict[str, Any]) -> str:
    error, _, words = message["message"].partition(": ")
    return words if error == UserError.__name__ else tail(message["extraInfo"]["py_callstack"])


def _ended_by_signal(agent_log: str) -> str:
    """The rank that, by torchrun's log, a signal other than torchrun's own ended; "" for none."""
    for host, rank, number in ENDED.findall(agent_log):
        if int(number) != signal.SIGTERM:
            return f" (rank {rank} on {host}, by {signal.Signals(int(number)).name})"
    return ""


def tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-TAIL_LINES:])


def main() -> None:
    die_with_launcher()
    os.environ[LAUNCHER] = str(os.getpid())
    from torch.distributed.run import main as torchrun

    torchrun()


if __name__ == "__main__":
    main()
