"""Start a module on several processes of this machine with torchrun, in the environment that ranks need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sampling.environment import rank_environment

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def launched(
    module: str, arguments: list[str], *, ranks: int, threads: int, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m module arguments` on `ranks` processes of `threads` threads; on leaving, whatever still runs is ended.

    Output of all ranks goes to `log`.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **rank_environment(threads), "PYTHONPATH": path}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*torchrun, "-m", module, *arguments],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
