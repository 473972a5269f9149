"""One rank of a real run: built, trained for some steps, each timed between two barriers, and traced on request."""

import importlib.metadata
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

from predict.layers.run_json import load_run
from predict.measurement.decoder import Training
from predict.measurement.reference_calls import ReferenceTimes
from predict.measurement.requirements import Implementation, trace_name
from predict.measurement.system_noise import Usage, noise_of, others_shares_here, quiet_steps, usage_of, waited_share
from predict.measurement.training import build_training
from predict.run.training_run import TrainingRun
from sampling.importers.torch_trace.events import FACTS

TRACED_STEPS = 3


def trace_steps(
    training: Training, folder: Path, facts: Mapping[str, Any], *, steps: int = TRACED_STEPS
) -> list[float]:
    """Record `steps` steps after one that warms the profiler up, and write them to `rank<n>.json.gz` in `folder`.

    Every rank of the process group must call it together. Returns the wall time of each recorded step in s, from barrier to
    barrier, by a clock that is not the profiler's.
    """
    path = folder / trace_name(dist.get_rank())
    wall_s: list[float] = []
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=1, active=steps, repeat=1),
        on_trace_ready=lambda record: record.export_chrome_trace(str(path)),
    ) as record:
        for step in range(steps + 1):
            if step == steps:
                record.add_metadata_json(FACTS, json.dumps(facts))
            dist.barrier()
            start = time.perf_counter()
            training.step()
            dist.barrier()
            wall_s.append(time.perf_counter() - start)
            record.step()
    return wall_s[1:]


@dataclass(kw_only=True, slots=True)
class RankReport:
    """One rank's record: each list has an entry per step, warm-up included. A loss is NaN where the rank has none."""

    parameters: int
    wall_s: list[float] = field(default_factory=list)
    machine_s: list[float] = field(default_factory=list)
    own_s: list[float] = field(default_factory=list)
    waited_s: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    traced_s: list[float] = field(default_factory=list)
    """Wall times of the steps that a profiler recorded."""


def train(training: Training, steps: int, reference: ReferenceTimes) -> RankReport:
    """Run and time `steps` steps, with readings of the machine's pace between them; every rank of the process group must call it
    together."""
    report = RankReport(parameters=training.parameters)
    for step in range(steps):
        reference.before_step(step)
        before = Usage.now()
        dist.barrier()
        start = time.perf_counter()
        loss = training.step()
        dist.barrier()
        report.wall_s.append(time.perf_counter() - start)
        used = Usage.now().since(before)
        report.machine_s.append(used.machine_s)
        report.own_s.append(used.own_s)
        report.waited_s.append(used.waited_s)
        report.losses.append(math.nan if loss is None else loss.item())
    return report


def build(run: TrainingRun, implementation: Implementation) -> Training:
    if implementation == "torch":
        return build_training(run)
    from predict.measurement.transformers_training import build_transformers_training

    return build_transformers_training(run)


def references_beside(reports: Sequence[Mapping[str, Any]], warmup: int, reference: ReferenceTimes) -> dict[str, Any]:
    """The reference calls beside the steps, by the reports of all ranks."""
    steps = usage_of(reports)[warmup:]
    kept = quiet_steps(others_shares_here(steps))[0]
    found = reference.summary([warmup + place for place in kept])
    return asdict(replace(found, waited_share=waited_share([steps[place] for place in kept])))


def facts_of(reports: Sequence[Mapping[str, Any]], warmup: int, reference: ReferenceTimes) -> dict[str, Any]:
    """Facts for a trace, by the reports of all ranks: the steps without the profiler whose median `predict measure` reports, their kind of
    noise, the threads that ran them, and the reference calls beside them."""
    steps = usage_of(reports)[warmup:]
    shares = others_shares_here(steps)
    kept_us = [steps[index].wall_s * 1e6 for index in quiet_steps(shares)[0]]
    return {
        "untraced_steps_us": kept_us,
        "noise": noise_of(shares, kept_us),
        "threads": torch.get_num_threads(),
        "references": references_beside(reports, warmup, reference),
    }


def body(
    run: str, steps: int, warmup: int, implementation: Implementation, timeout_s: float, trace: str | None
) -> dict[str, Any] | None:
    """Every rank's report of a run as `predict.layers.run_json` writes it, on rank 0.

    `steps` contain the `warmup` ones; no rank waits longer than `timeout_s` for another; `trace` is the folder for a trace of a few
    more steps, one file per rank.
    """
    dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))
    wanted = load_run(run)
    training, reference = build(wanted, implementation), ReferenceTimes(wanted.cluster)
    report = train(training, steps, reference)
    if trace:
        report.traced_s = trace_steps(training, Path(trace), facts_of(_of_all_ranks(report), warmup, reference))
    reports = _of_all_ranks(report)
    libraries = dict.fromkeys(("torch", implementation))
    versions = {library: importlib.metadata.version(library) for library in libraries}
    found = {"ranks": reports, "versions": versions, "references": references_beside(reports, warmup, reference)}
    return found if dist.get_rank() == 0 else None


def _of_all_ranks(report: RankReport) -> list[Any]:
    reports: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(reports, asdict(report))
    return reports
