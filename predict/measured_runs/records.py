"""The memory of runs: a small JSON file for each measured run below `runs/<cluster>` of the user's data.

A file is written whole under a name that its content gives, so that two writers never meet, and the same run recorded twice is one.
The name ends in the record's id. Dates are this machine's local times, without a zone.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np

from predict import estimate, load
from predict.config.load import cluster_file
from predict.layers.run_json import dump_run, load_run
from predict.ledger.job_settings import JobSettings, built, texts_as_values
from predict.ledger.whole_job import MINUTES, checkpoint_bytes, load_hours
from predict.measured_runs.calibrate import ANEW, doubt_of
from predict.measured_runs.judge import Judgement, judge
from predict.measured_runs.measured_step import MeasuredStep, measured_step
from predict.measured_runs.steady_state import are_repeats
from predict.run.calibration_terms import NINETY, Micros
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from sampling.errors import UNREADABLE, SamplesError, UserError
from sampling.files.disk import MAKE_WRITABLE, naming_the_disk, require_place, write_atomically
from sampling.files.documents import read_json
from sampling.files.faults import did_you_mean
from sampling.files.places import own_data
from sampling.files.schema import Key, Text, read
from sampling.units import GB

ID_DIGITS = 7
"""Digits of an id that are shown; more of the digest may be given."""
Bytes: TypeAlias = Annotated[float, Key(maximum=1e18)]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedPrediction:
    """A step as it was predicted when the run was recorded, with the calibration of its cluster; times are µs."""

    median_us: Micros
    low_us: Micros
    high_us: Micros
    peak_bytes: Bytes | None = None
    """Peak of the tensors on the fullest rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedStep:
    """A step as it was measured; times are µs."""

    step_us: Micros
    p10_us: Micros
    p90_us: Micros
    source: Text
    peak_bytes: Bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A measured run of a cluster, and what was predicted of it then."""

    HEADER: ClassVar[Mapping[str, Any]] = {"format": "measured-run", "version": 1}

    cluster: Text
    run: Text
    date: Text
    """Date of the measurement in ISO 8601."""
    measured: RecordedStep
    predicted: RecordedPrediction
    described: Any
    """The run without any calibration, as JSON."""
    doubt: str = ""
    """Why the step may be of another run, or disturbed; empty for one that counts."""

    @property
    def error(self) -> float:
        """(predicted − measured) / measured, as predicted then."""
        return self.predicted.median_us / self.measured.step_us - 1

    @property
    def covered(self) -> bool:
        return self.predicted.low_us <= self.measured.step_us <= self.predicted.high_us

    def loaded(self, place: Path) -> TrainingRun:
        """The run, to be predicted again. SamplesError where this version does not know it as it is described."""
        try:
            return load_run(self.described)
        except UNREADABLE:
            raise SamplesError(
                f"{place}: the run is not described as this version predicts it; record it anew, or remove the file"
            ) from None


def record_of(
    run: TrainingRun, cluster: str, step: MeasuredStep, predicted: Prediction, now: str, *, doubt: str = ""
) -> Record:
    """The record of a run without calibration, and of its prediction with the cluster's; `now` dates a step without a date."""
    stated = predicted.step_time
    return Record(
        cluster=cluster,
        run=run.name,
        date=local_time(step.date or now).isoformat(timespec="seconds"),
        measured=RecordedStep(**{each.name: getattr(step, each.name) for each in fields(RecordedStep)}),
        predicted=RecordedPrediction(
            median_us=stated.median_us,
            low_us=stated.low_us,
            high_us=stated.high_us,
            peak_bytes=float(predicted.memory.worst.counted),
        ),
        described=dump_run(replace(run, calibration=None)),
        doubt=doubt,
    )


def local_time(date: str) -> datetime:
    """A date in ISO 8601 as this machine's local time; ValueError for anything but a date."""
    found = datetime.fromisoformat(date)
    return found.astimezone().replace(tzinfo=None) if found.tzinfo else found


def keep(record: Record) -> tuple[Path, bool]:
    """Write a record; its file, and whether it is new. UserError for a name that a folder cannot have."""
    same = json.dumps([record.described, record.date, record.measured.step_us])
    digest = hashlib.sha256(same.encode()).hexdigest()[:12]
    place = folder_of(record.cluster) / f"{record.date[:10]}-{_file_name(record)}-{digest}.json"
    if place.exists():
        return place, False
    write(place, record)
    return place, True


def write(place: Path, record: Any) -> None:
    """Write a record of a run or of a job, a dataclass with a HEADER, behind its header. UserError where the disk does not let it."""
    with naming_the_disk(place):
        write_atomically(place, f"{json.dumps({**record.HEADER, **asdict(record)}, indent=1)}\n".encode())


def like(record: Record, kept: Path) -> list[str]:
    """The ids of the cluster's other records of the same run with the same step, of whatever date."""
    places = sorted(kept.parent.glob(f"*-{_file_name(record)}-*.json"))
    contents = ((place, read_json(place)[0] or {}) for place in places if place != kept)
    same = json.dumps([record.described, record.measured.step_us])
    return [
        id_of(place)
        for place, content in contents
        if isinstance(step := content.get("measured"), dict)
        and json.dumps([content.get("described"), step.get("step_us")]) == same
    ]


def _file_name(record: Record) -> str:
    return re.sub(r"[^\w.-]+", "-", record.run)[:60]


def id_of(place: Path) -> str:
    """The id of a record: the start of the digest in its file's name."""
    return place.stem.rpartition("-")[2][:ID_DIGITS]


def remove(id_: str, cluster: str | None = None) -> Path:
    """Take a record of a run or a job away: of the cluster, or of any; its file as it was.

    UserError where no record, or more than one, has the id.
    """
    places = sorted((folder_of(cluster) if cluster else _runs()).rglob("*.json"))
    found = [place for place in places if place.stem.rpartition("-")[2].startswith(id_)] if id_ else []
    if len(found) != 1:
        near = did_you_mean(id_, [id_of(place) for place in places])
        named = f"; {', '.join(place.stem for place in found)} have it: give more digits" if found else near
        raise UserError(
            f"--remove: {id_!r} is not the id of one recorded run{named}; `predict history` lists the id of each"
        )
    with naming_the_disk(found[0]):
        found[0].unlink()
    return found[0]


def cluster_of(config: Path | str, overrides: Sequence[str], run: TrainingRun) -> str:
    """The folder of a config's cluster: its file's name, else its profile."""
    file = cluster_file(Path(config), overrides)
    return file.stem if file else run.cluster.profile


def folder_of(cluster: str) -> Path:
    if not re.fullmatch(r"\w[\w.-]{0,99}", cluster):
        raise UserError(f"cluster: {cluster!r} is not the name of a folder; use letters, digits, dots and dashes")
    return _runs() / cluster


def _runs() -> Path:
    return own_data() / "runs"


def recorded_clusters() -> list[str]:
    """The clusters that have recorded runs; one that has only jobs has none."""
    return sorted(path.name for path in _runs().glob("*/") if any(path.glob("*.json")))


def records(cluster: str, report: Callable[[str], None]) -> list[tuple[Path, Record]]:
    """The records of a cluster with their files, in the order of their dates; a damaged one is reported and left out. SamplesError where
    there are none, or none that can be read."""
    places = sorted(folder_of(cluster).glob("*.json"))
    found, faults = [], []
    for place in places:
        try:
            record = read(Record, place, error=SamplesError, fix="remove the file, or record the run anew")
            found.append((_moment(place, record), place, record))
        except SamplesError as error:
            faults.append(str(error))
    if not places:
        known = recorded_clusters()
        near = did_you_mean(cluster, known) or (f"; there are {', '.join(known)}" if known else "")
        raise SamplesError(f"no run of {cluster} is recorded by `predict record` in {folder_of(cluster)}{near}")
    if not found:
        raise SamplesError("\n".join(faults))
    for fault in faults:
        report(f"left out: {fault}")
    return [(place, record) for _, place, record in sorted(found, key=lambda each: (each[0], each[1].name))]


def _moment(path: Path, record: Record) -> datetime:
    try:
        return local_time(record.date)
    except ValueError:
        raise SamplesError(f"{path}: date: {record.date!r} is not a date; write it as in 2026-03-12T10:22") from None


def past_date(option: str, text: str | None) -> str:
    """The local time in ISO 8601, without a zone; empty where none is given. UserError for anything but a date, and for the future."""

    if not text:
        return ""
    try:
        date = local_time(text)
    except ValueError:
        raise UserError(f"{option}: {text!r} is not a date; give it as in 2026-03-12 or 2026-03-12T10:22") from None
    if date > datetime.now():
        raise UserError(f"{option}: {text} is in the future; give the day of the run")
    return date.isoformat(timespec="seconds")


def outlier_reasons(records: Sequence[Record]) -> list[str]:
    """Why each record does not count; empty for one that does, or that another one of its configuration bears out as a repeat.

    A doubtful record is kept, but neither judges predictions nor shows drift: a log of another run, or steps that were disturbed, would
    hide a change and spoil the mean error, and a cluster that really became that much slower shows it by its next run.
    """
    return ["" if _borne_out(one, records) else one.doubt for one in records]


def _borne_out(one: Record, records: Sequence[Record]) -> bool:
    return any(
        other is not one
        and other.described == one.described
        and are_repeats((other.measured.step_us, one.measured.step_us))
        for other in records
    )


# A measured run, predicted and kept.


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptRecord:
    """A record, its file, and what is to be said of it."""

    record: Record
    file: Path
    new: bool
    """Whether it was not recorded before."""
    doubt: str
    """Why its step may be wrong; empty for one that nothing speaks against."""
    like: Sequence[str]
    """Ids of other records of this run with the same step."""
    judgement: Judgement
    """Whether the step is normal, and what is likely where it is not."""


def record(
    config: Path | str, overrides: Sequence[str] = (), *, log: str, cluster: str | None = None, date: str | None = None
) -> KeptRecord:
    """Keep a measured run, and what is predicted of it, in runs/CLUSTER of the user's data.

    `log` is a training log, a file of `predict measure --json`, or the time of a step such as `3.2s`; `cluster` the folder (default: the
    name of the cluster's file, else its profile); `date` when it was measured (default: as the log says, else now). UserError for what
    cannot be read, and for a date in the future.
    """
    day = past_date("--date", date)
    uncalibrated = load(config, [*overrides, ANEW])
    step = measured_step(log, uncalibrated, option="--log")
    folder = cluster or cluster_of(config, overrides, uncalibrated)
    require_place(folder_of(folder), MAKE_WRITABLE)
    prediction = estimate(load(config, overrides), require_fit=False)
    doubt = doubt_of(step, uncalibrated, prediction.run.calibration, "--log")
    now = datetime.now().isoformat(timespec="seconds")
    made = record_of(uncalibrated, folder, replace(step, date=day or step.date), prediction, now, doubt=doubt)
    if made.date > now:
        raise UserError(f"--log: {log}: its date, {made.date}, is in the future; give the day of the run with --date")
    place, new = keep(made)
    alike = like(made, place) if new else ()
    return KeptRecord(record=made, file=place, new=new, doubt=doubt, like=alike, judgement=judge(prediction, step))


# Measured jobs of a cluster: their failures, restarts and saves, kept in runs/CLUSTER/jobs, and what they say of the next job.

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
