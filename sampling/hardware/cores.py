"""The cores of a rank on a CPU: its threads that compute have one each, those that communicate may use all.

A rank that waits for another sleeps, and so does a thread at the end of a parallel region. The kernel tends to wake a sleeper on the core
of whoever woke it: two ranks, or two threads of one, then share a core for a while although another is idle, and a step takes up to
twice its time. Bound to cores of their own they cannot. The threads of gloo must not be bound with them: they would wait up to the 3 ms
of a time slice for the thread that computes.
"""

import os
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

TASKS = Path("/proc/self/task")
CAN_BIND = hasattr(os, "sched_setaffinity")
"""Whether this system binds threads to cores; macOS does not."""


def own_cores(*, rank: int, ranks: int, threads: int, allowed: Collection[int]) -> set[int]:
    """The cores of a rank of a node, one a thread, among those that it may run on; all of these where they are too few for the ranks."""
    if ranks * threads > len(allowed):
        return set(allowed)
    return set(sorted(allowed)[rank * threads : (rank + 1) * threads])


def bind_to_own_cores() -> None:
    """Bind this rank, as torchrun started it, and each of its threads of OpenMP, which reads its variables when torch is imported."""
    if not CAN_BIND:
        return
    rank, ranks, threads = (int(os.environ[name]) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS"))
    cores = own_cores(rank=rank, ranks=ranks, threads=threads, allowed=os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores)
    if threads > 1 and len(cores) == threads:
        os.environ["OMP_PROC_BIND"] = "true"


def release_other_threads() -> None:
    """Let the threads that this one started, which began on its core, run on all that torchrun may use. OpenMP's have other cores."""
    if not CAN_BIND:
        return
    own, all_cores = os.sched_getaffinity(0), os.sched_getaffinity(os.getppid())
    if own == all_cores:
        return
    for task in TASKS.iterdir():
        thread = int(task.name)
        with suppress(ProcessLookupError):  # it ended meanwhile
            if thread != threading.get_native_id() and os.sched_getaffinity(thread) == own:
                os.sched_setaffinity(thread, all_cores)
