"""The environment of a rank's process, the same for a sampled call and for a real step."""

from __future__ import annotations


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
