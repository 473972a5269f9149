"""A job: the calls that ranks are to time, where to keep the rows, and for how long."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sampling.call import Phase
from sampling.files.disk import naming_the_disk, scratch_folder
from sampling.files.faults import counted
from sampling.hardware.cluster import Machine, hardware_facts
from sampling.ranks.launch import launch


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """JSON-able. `requests` are (call name, fields, phases); `ranks_per_node` processes share a node's `cores` CPU cores."""

    directory: str
    profile: str
    hardware: str
    cores: int | None
    ranks_per_node: int
    session: int
    budget_s: float
    timer: dict[str, Any]
    requests: list[tuple[str, dict[str, Any], list[Phase]]]
    nodes: int = 1
    group: tuple[int, int] | None = None
    """Ranks, and ranks per node, of the groups that its cells run on, all groups at once; None for all ranks as one group."""

    deadline_s: float | None = None
    """End of the budget on `time.monotonic` of the machine on which all ranks run; None for `budget_s` from their own start."""

    @property
    def machine(self) -> Machine:
        return Machine(nodes=self.nodes, gpus_per_node=self.ranks_per_node)

    @property
    def label(self) -> str:
        """The ranks of the job in words."""
        per_node = f"{counted(self.ranks_per_node, 'rank')}"
        on_nodes = f"{per_node} on each of {self.nodes} nodes" if self.nodes > 1 else per_node
        return f"{on_nodes}, {self.group[0]} at a time" if self.group else on_nodes


RunJob = Callable[[Job, Callable[[], None]], None]
"""Has ranks time a job and returns when they are done; meanwhile it calls the function from time to time."""


MESSAGES = "messages.txt"


def leave_message(directory: Path, text: str) -> None:
    with (directory / MESSAGES).open("a", encoding="utf-8") as file:
        file.write(text + "\n")


def take_messages(directory: Path) -> list[str]:
    """The messages in `directory`, without repetitions; their file is removed."""
    path = directory / MESSAGES
    if not path.is_file():
        return []
    messages = path.read_text(encoding="utf-8").splitlines()
    path.unlink()
    return list(dict.fromkeys(messages))


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
        with naming_the_disk(job_file):
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
