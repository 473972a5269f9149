"""One rank of a real run, started by torchrun: build it, train for some steps, and report.

Every step is timed by rank 0 between two barriers. What is reported is written before the process group is torn down.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from predict.layers.run_json import load_run
from predict.measurement.requirements import Implementation
from predict.measurement.system_noise import Usage, noise_of, others_shares_here, quiet_steps, usage_of
from predict.measurement.traced_steps import trace_steps
from predict.measurement.training import build_training
from predict.measurement.training_step import Training
from predict.run.training_run import TrainingRun
from sampling.ranks.launch import die_with_launcher, leave


@dataclass(kw_only=True, slots=True)
class RankReport:
    """One rank's record: each list has an entry per step, warm-up included. A loss is NaN where the rank has none."""

    parameters: int
    wall_s: list[float] = field(default_factory=list)
    machine_s: list[float] = field(default_factory=list)
    own_s: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    traced_s: list[float] = field(default_factory=list)
    """Wall times of the steps that a profiler recorded."""


def train(training: Training, steps: int) -> RankReport:
    """Run and time `steps` steps; every rank of the process group must call it together."""
    report = RankReport(parameters=training.parameters)
    for _ in range(steps):
        before = Usage.now()
        dist.barrier()
        start = time.perf_counter()
        loss = training.step()
        dist.barrier()
        report.wall_s.append(time.perf_counter() - start)
        after = Usage.now()
        report.machine_s.append(after.machine_s - before.machine_s)
        report.own_s.append(after.own_s - before.own_s)
        report.losses.append(math.nan if loss is None else loss.item())
    return report


def build(run: TrainingRun, implementation: Implementation) -> Training:
    if implementation == "torch":
        return build_training(run)
    from predict.measurement.transformers_training import build_transformers_training

    return build_transformers_training(run)


def facts_of(reports: Sequence[Mapping[str, Any]], warmup: int) -> dict[str, Any]:
    """Facts for a trace, by the reports of all ranks: the steps without the profiler whose median `predict measure` tells, their kind of
    noise, and the threads that ran them."""
    steps = usage_of(reports)[warmup:]
    shares = others_shares_here(steps)
    kept_us = [steps[index].wall_s * 1e6 for index in quiet_steps(shares)[0]]
    return {"untraced_steps_us": kept_us, "noise": noise_of(shares, kept_us), "threads": torch.get_num_threads()}


def write_reports(report: RankReport, path: Path, implementation: Implementation) -> None:
    """Collect every rank's report into one JSON file, written by rank 0."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    collected: list[Any] = [None] * ranks
    dist.gather_object(asdict(report), collected if rank == 0 else None)
    if rank == 0:
        libraries = ("torch",) if implementation == "torch" else ("torch", implementation)
        versions = {library: importlib.metadata.version(library) for library in libraries}
        path.write_text(json.dumps({"ranks": collected, "versions": versions}))


@record
def main() -> None:
    die_with_launcher()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the run as predict.layers.run_json writes it")
    parser.add_argument("result", type=Path, help="JSON file to write")
    parser.add_argument("steps", type=int, help="steps to run, warm-up included")
    parser.add_argument("warmup", type=int, help="how many of them come before the measured ones")
    parser.add_argument("implementation", choices=("torch", "transformers"))
    parser.add_argument("timeout_s", type=float, help="longest wait for another rank")
    parser.add_argument("--trace", type=Path, help="folder for a trace of a few more steps, one file per rank")
    arguments = parser.parse_args()
    dist.init_process_group("gloo", timeout=timedelta(seconds=arguments.timeout_s))
    training = build(load_run(arguments.run.read_text()), arguments.implementation)
    report = train(training, arguments.steps)
    if arguments.trace:
        reports: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(reports, asdict(report))
        report.traced_s = trace_steps(training, arguments.trace, facts_of(reports, arguments.warmup))
    write_reports(report, arguments.result, arguments.implementation)
    dist.barrier()
    dist.destroy_process_group()
    leave()


if __name__ == "__main__":
    main()
