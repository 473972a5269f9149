"""A measured run kept with what was predicted of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from predict import estimate, load
from predict.measured_runs.calibrate import ANEW, doubt_of
from predict.measured_runs.judge import Judgement, judge
from predict.measured_runs.measured_step import measured_step
from predict.measured_runs.records import Record, cluster_of, folder_of, keep, like, past_date, record_of
from sampling.errors import UserError
from sampling.files.disk import MAKE_WRITABLE, require_place


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
