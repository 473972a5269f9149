"""Measured jobs of a cluster: their failures, restarts and saves, kept in runs/CLUSTER/jobs, and what they say of the next job."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, ClassVar

import numpy as np

from predict import load
from predict.ledger.job_settings import JobSettings, built, texts_as_values
from predict.ledger.whole_job import MINUTES, checkpoint_bytes, load_hours
from predict.measured_runs.records import cluster_of, folder_of, past_date, write
from predict.run.calibration_terms import NINETY
from predict.run.training_run import TrainingRun
from sampling.errors import SamplesError, UserError
from sampling.files.disk import MAKE_WRITABLE, require_place
from sampling.files.schema import Key, Text, read
from sampling.units import GB

JOBS = "jobs"
RATES_TRIED = 4001
WIDEST = 6.0
"""Half-widths of the prior, on either side, among which the posterior is sought."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredJob:
    """A job's interruptions and saves, as its log or its operators count them. Times of 0 are not known."""

    hours: Annotated[float, Key(minimum=0.01, maximum=1e6)]
    """Hours that it ran, whatever it did."""
    failures: Annotated[int, Key(minimum=0, maximum=10**7)]
    """Failures that stopped it."""
    restart_min: Annotated[float, Key(minimum=0, maximum=1e5)] = 0.0
    """Mean minutes from a failure until steps went on."""
    save_s: Annotated[float, Key(minimum=0, maximum=1e6)] = 0.0
    """Mean seconds that a save to storage took."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """A measured job of a cluster."""

    HEADER: ClassVar[Mapping[str, Any]] = {"format": "measured-job", "version": 1}

    cluster: Text
    run: Text
    date: Text
    gpus: Annotated[int, Key(minimum=1)]
    checkpoint_gb: Annotated[float, Key(minimum=0, maximum=1e9)]
    measured: MeasuredJob


def measured_job(texts: Sequence[str]) -> MeasuredJob:
    """The job of `KEY=VALUE` texts; UserError with a line for each that is wrong."""
    return built(MeasuredJob, *texts_as_values(texts), option="--job")


def record_job(
    config: Path | str,
    overrides: Sequence[str] = (),
    *,
    measured: MeasuredJob,
    cluster: str | None = None,
    date: str | None = None,
) -> Path:
    """Keep a measured job in runs/CLUSTER/jobs of the user's data; its file. `cluster` is the folder (default: the name of the cluster's
    file, else its profile). UserError for a date in the future."""
    day = past_date("--date", date) or datetime.now().isoformat(timespec="seconds")
    run = load(config, overrides)
    record = JobRecord(
        cluster=cluster or cluster_of(config, overrides, run),
        run=run.name,
        date=day,
        gpus=run.cluster.world_size,
        checkpoint_gb=checkpoint_bytes(run) / GB,
        measured=measured,
    )
    digest = hashlib.sha256(json.dumps(asdict(replace(record, date=day[:10]))).encode()).hexdigest()[:12]
    place = folder_of(record.cluster) / JOBS / f"{day[:10]}-{digest}.json"
    require_place(place, MAKE_WRITABLE)
    write(place, record)
    return place


def recorded_jobs(cluster: str) -> tuple[JobRecord, ...]:
    """The measured jobs of a cluster; SamplesError where there are none, or one is damaged."""
    places = sorted((folder_of(cluster) / JOBS).glob("*.json"))
    if not places:
        raise SamplesError(
            f"--recorded: no job of {cluster} is recorded in {folder_of(cluster) / JOBS}; keep one with `predict record CONFIG --job hours=… "
            "--job failures=…`"
        )
    fix = "remove the file, or record the job anew"
    return tuple(read(JobRecord, place, error=SamplesError, fix=fix) for place in places)


def learnt(given: JobSettings, jobs: Sequence[JobRecord], run: TrainingRun) -> JobSettings:
    """The settings of `run` with what measured jobs say: the posterior of the rate of failures, the mean time to restart, that of storage.

    The prior of the rate is log-normal, by `gpu_hours_a_failure` and `failure_factor`; the failures of a job are Poisson.
    """
    hours, failures = sum(job.gpus * job.measured.hours for job in jobs), sum(job.measured.failures for job in jobs)
    median, width = posterior_rate(given, hours=hours, failures=failures)
    rates = [job.checkpoint_gb / job.measured.save_s for job in jobs if job.measured.save_s]
    found = replace(given, gpu_hours_a_failure=1 / median, failure_factor=math.exp(width))
    if rates:
        found = replace(found, storage_gb_per_s=fmean(rates))
    restarts = [_restart_min(job, found, run) for job in jobs if job.measured.restart_min]
    return replace(found, detect_min=0.0, restart_min=fmean(restarts)) if restarts else found


def _restart_min(job: JobRecord, given: JobSettings, run: TrainingRun) -> float:
    """Minutes of a measured restart, noticing included, without loading and compilation, which settings count apart."""
    loading = load_hours(run, given, job.checkpoint_gb * GB) * MINUTES
    return max(0.0, job.measured.restart_min - loading - given.compile_min)


def posterior_rate(prior: JobSettings, *, hours: float, failures: int) -> tuple[float, float]:
    """Median failures a GPU-hour after so many in so many GPU-hours, and their half-width in log at 90 %."""
    width = math.log(prior.failure_factor)
    if not width or not prior.gpu_hours_a_failure:
        raise UserError(
            "--recorded: gpu_hours_a_failure is given as known, so that recorded jobs say nothing more; omit it, or give its failure_factor"
        )
    logs = np.linspace(-WIDEST * width, WIDEST * width, RATES_TRIED) - math.log(prior.gpu_hours_a_failure)
    of_prior = -0.5 * ((logs + math.log(prior.gpu_hours_a_failure)) * NINETY / width) ** 2
    likely = of_prior + failures * logs - np.exp(logs) * hours
    each = np.exp(likely - likely.max())
    below = (np.cumsum(each) - each / 2) / each.sum()
    low, median, high = np.interp([0.05, 0.5, 0.95], below, logs)
    return float(np.exp(median)), float(high - low) / 2
