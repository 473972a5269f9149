"""The cores of a rank on a CPU: its threads that compute have one each, those that communicate may use all.

A rank that waits for another sleeps, and so does a thread at the end of a parallel region. The kernel tends to wake a sleeper on the core
of whoever woke it: two ranks, or two threads of one, then share a core for a while although another is idle, and a step takes up to
twice its time. Bound to cores of their own they cannot. The threads of gloo must not be bound with them: they would wait for the
thread that computes, up to the 4 ms of a tick of the scheduler.
"""

import os
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

TASKS = Path("/proc/self/task")
CAN_BIND = hasattr(os, "sched_setaffinity")
"""Whether this system binds threads to cores; macOS does not."""

_cores_before: set[int] = set()
"""Cores that this process might use before it was bound; none while it is not."""


def own_cores(*, rank: int, ranks: int, threads: int, allowed: Collection[int]) -> set[int]:
    """The cores of a rank of a node: an even share of those that it may run on; none where they are too few for a core a thread."""
    share = len(allowed) // ranks
    return set(sorted(allowed)[rank * share : (rank + 1) * share]) if share >= threads else set()


def bind_to_own_cores() -> None:
    """Bind this rank, as torchrun started it; where it has a core a thread, those of OpenMP too, which reads its variables when torch is
    imported."""
    if not CAN_BIND:
        return
    rank, ranks, threads = (int(os.environ[name]) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS"))
    allowed = os.sched_getaffinity(0)
    cores = own_cores(rank=rank, ranks=ranks, threads=threads, allowed=allowed)
    if not cores:
        return
    os.sched_setaffinity(0, cores)
    _cores_before.update(allowed)
    if threads > 1 and len(cores) == threads:
        os.environ["OMP_PROC_BIND"] = "true"


def release_other_threads() -> None:
    """Let the threads that this one started, which began on its cores, run on all that the process might use before it was bound; OpenMP's,
    bound to other cores, stay. Nothing where it was not bound here."""
    if not _cores_before:
        return
    own = os.sched_getaffinity(0)
    for task in TASKS.iterdir():
        thread = int(task.name)
        with suppress(ProcessLookupError):  # it ended meanwhile
            if thread != threading.get_native_id() and own <= os.sched_getaffinity(thread):
                os.sched_setaffinity(thread, _cores_before)
