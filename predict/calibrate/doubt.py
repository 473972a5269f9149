"""Doubt about one measured run: whether `predict calibrate` would take it."""

from __future__ import annotations

from pathlib import Path

from predict.calibrate.fit import MeasuredRun
from predict.calibrate.measured import held_times, measured_runs
from predict.calibrate.refusals import explained_fit, require_units
from predict.own_runs.measured_step import LoggedStep, noise_warning
from predict.run.calibration.terms import Posterior
from predict.run.training_run import TrainingRun
from sampling.errors import UserError

CALIBRATION = Path("cluster.calibration")
"""Key of a cluster's file that names its calibration."""


def doubt_of(step: LoggedStep, run: TrainingRun, known: Posterior | None, option: str) -> str:
    """Why a step may be disturbed, or of another run than this one without calibration; empty where it is as expected, also by the runs that
    the cluster's calibration rests on. UserError for a step in another unit; `option` gave it."""
    given = MeasuredRun(name=run.name, runs=(run,), measured_us=step.step_us, noise=step.noise)
    require_units([given], option)
    if step.noisy:
        return noise_warning(step)
    held = _held(known)
    try:
        explained_fit([*held, given], option=option)
    except UserError as error:
        beside = "beside the runs that the cluster's calibration rests on: " if held else ""
        return beside + str(error).removeprefix(f"{option}: ")
    return ""


def _held(known: Posterior | None) -> list[MeasuredRun]:
    """The runs of a calibration; none where this version cannot predict them again."""
    if known is None:
        return []
    try:
        return measured_runs(held_times(known, CALIBRATION))
    except UserError:
        return []
