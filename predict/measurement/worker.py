"""The processes of a measurement: one entry, in which the body of a kind of job runs.

report = run_in_processes("rl", {"config": "grpo.yml", "overrides": [], "steps": 5}, name="grpo", processes=1, threads=1, timeout_s=600)

A job is a JSON file with its kind and the arguments of its `body`; what that returns on rank 0 is another.
"""

import json
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from sampling.files.disk import scratch_folder
from sampling.ranks.launch import die_with_launcher, launch, leave

BODIES = {
    "training": "predict.measurement.timed_training",
    "one-gpu": "predict.measurement.one_gpu",
    "memory": "predict.measurement.count_bytes",
    "pace": "predict.measurement.reference_calls",
    "serving": "predict.measurement.serving.job",
    "rl": "predict.measurement.grpo",
}
"""Kind of job → the module whose `body` takes its arguments and returns the report, None on ranks that have nothing to report."""


def run_in_processes(
    kind: str, arguments: Mapping[str, Any], *, name: str, processes: int, threads: int, timeout_s: float
) -> Any:
    """The report of a job that ran in fresh processes, one a rank.

    RanksFailedError, which begins with `name`, for ranks that fail or are not done in time; none outlives this call.
    """
    with scratch_folder(f"measure-{kind}") as folder:
        job, result = folder / "job.json", folder / "result.json"
        job.write_text(json.dumps({"kind": kind, "arguments": dict(arguments)}))
        worker = ("-m", "predict.measurement.worker", str(job), str(result))
        launch(worker, name=name, processes=processes, threads=threads, timeout_s=timeout_s)
        return json.loads(result.read_text())


def run_job(job: Path, result: Path) -> None:
    """Run a job as one of its ranks. The report is written before the process group is torn down."""
    import torch.distributed as dist

    wanted = json.loads(job.read_text())
    report = import_module(BODIES[wanted["kind"]]).body(**wanted["arguments"])
    if report is not None:
        result.write_text(json.dumps(report))
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def main() -> None:
    from torch.distributed.elastic.multiprocessing.errors import record

    die_with_launcher()
    job, result = sys.argv[1:]
    record(run_job)(Path(job), Path(result))
    leave()


if __name__ == "__main__":
    main()
