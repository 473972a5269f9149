"""Runs a job in ranks of its own on this machine."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace

from sampling.files.scratch import scratch_folder
from sampling.hardware.cluster import hardware_facts
from sampling.ranks.job import Job
from sampling.ranks.launch import launch

START_S = 4.0
"""Time that a job's processes take to start; with less time left, no job is started."""
END_S = 1.5
"""Time that they take to end."""
GRACE_S = 90.0
"""Time past its budget that a worker may take to start, finish its last call and end, before it counts as hung."""


def run_on_local_ranks(job: Job, meanwhile: Callable[[], None], *, lock: int | None = None) -> None:
    """Start `sampling.ranks.worker` on `job.ranks_per_node` processes and wait for them; RanksFailedError if one fails.

    The job's budget counts from now, the start and the end of its processes included; with less than START_S they are not started.
    `lock` is the profile's, which holds as long as any rank lives.
    """
    if job.budget_s < START_S:
        return
    job = replace(job, deadline_s=time.monotonic() + job.budget_s - END_S)
    cores = job.cores or os.cpu_count() or 1
    threads = max(1, cores // job.ranks_per_node) if hardware_facts(job.hardware).kind == "cpu" else 0
    with scratch_folder("job") as scratch:
        job_file = scratch / "job.json"
        job_file.write_text(json.dumps(asdict(job)))
        launch(
            ["-m", "sampling.ranks.worker", str(job_file)],
            name=f"sampling on {job.label} (rows kept so far stay; run again to go on)",
            processes=job.ranks_per_node,
            threads=threads,
            timeout_s=job.budget_s + GRACE_S,
            meanwhile=meanwhile,
            lock=lock,
        )
