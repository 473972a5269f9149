"""Runs a program as a rank on cores of its own: `python -m sampling.ranks.bound -m MODULE ARGUMENTS…`, or `… SCRIPT ARGUMENTS…`.

A rank that waits for another sleeps, and so does a thread at the end of a parallel region. The kernel tends to wake a sleeper on the core
of whoever woke it: two ranks, or two threads of one, then share a core for a while although another is idle, and a step takes up to
twice its time. Bound to cores of their own they cannot.
"""

import os
import runpy
import sys
from collections.abc import Collection


def own_cores(*, rank: int, ranks: int, threads: int, allowed: Collection[int]) -> set[int]:
    """The cores of a rank of a node, one a thread, among those that it may run on; all of these where they are too few for the ranks."""
    if ranks * threads > len(allowed):
        return set(allowed)
    return set(sorted(allowed)[rank * threads : (rank + 1) * threads])


def bind_to_own_cores() -> None:
    """Bind this rank, as torchrun started it, and each of its threads of OpenMP, which reads its variables when torch is imported."""
    if not hasattr(os, "sched_setaffinity"):
        return
    rank, ranks, threads = (int(os.environ[name]) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS"))
    allowed = os.sched_getaffinity(0)
    cores = own_cores(rank=rank, ranks=ranks, threads=threads, allowed=allowed)
    os.sched_setaffinity(0, cores)
    if threads > 1 and len(cores) == threads:
        os.environ["OMP_PROC_BIND"] = "true"


def main() -> None:
    bind_to_own_cores()
    del sys.argv[0]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
