"""The work of `predict calibrate`: runs of one cluster and their measured times to a calibration file, and forgetting one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from predict.config.load import cluster_file, load
from predict.measured_runs.fit_terms import MeasuredRun, explained_fit, posterior_of, require_units
from predict.measured_runs.measured_step import MeasuredStep, given_times, held_times, measured_runs, noise_warning
from predict.run.calibration_file import calibration_text, other_cluster, read_calibration
from predict.run.calibration_terms import Calibration, EarlierFit, Posterior, prior_deviations
from predict.run.training_run import TrainingRun
from regressors.features.arrays import Floats
from sampling.errors import Checks, UserError
from sampling.files.disk import naming_the_disk, require_place, write_atomically
from sampling.files.faults import counted

ANEW = "cluster.calibration=null"
"""The setting under which a run is predicted by the priors alone."""
SUFFIX = ".calibration.yml"


def calibrate(
    configs: Sequence[Path | str],
    overrides: Sequence[str] = (),
    *,
    measured: Sequence[str],
    output: Path | str | None = None,
    write: bool = True,
    report: Callable[[str], None] = lambda line: None,
) -> tuple[Path | None, Posterior]:
    """Fit the terms of a calibration to runs, and to those that the file holds, and write it unless `write` is false; the fit before is
    kept in its history. `measured` is the step of each config, as `predict calibrate --measured` takes it. The file is None where nothing
    is written and nothing names one.

    UserError for measurements that the terms do not explain, and where configs are of different clusters.
    """
    runs = [load(config, [*overrides, ANEW]) for config in configs]
    place = Path(output) if output else _beside_cluster(configs, overrides)
    with Checks() as checks:
        if write and place is None:
            checks.run(_require_output)
        if write and place:
            checks.run(require_place, place)
        history = _history(place) if place else ()
        held = held_times(read_calibration(place), place) if place and place.exists() else []
        _require_one_cluster([*(run for run, _ in held), *runs])
        times = measured_runs([*held, *given_times(runs, measured, report)])
        require_units(times)
    if held:
        added = sum(len(each.times) for each in times) - len(held)
        report(
            f"{place} holds {counted(len(held), 'earlier measurement')}; {added or 'none'} of those given {'is' if added < 2 else 'are'} new"
        )
    posterior = replace(posterior_of(times, explained_fit(times, report)), history=history)
    if write and place:
        _write(place, posterior)
    return place, posterior


def forget(place: Path) -> Posterior:
    """Take a calibration's terms back to the priors; its history stays. UserError where there are none."""
    known = read_calibration(place)
    if not known.runs:
        raise UserError(f"--forget: {place} holds no terms to forget")
    require_place(place)
    posterior = Posterior(terms=Calibration(), history=_history(place))
    _write(place, posterior)
    return posterior


def _require_one_cluster(runs: Sequence[TrainingRun]) -> None:
    first, *others = runs
    for other in others:
        if differing := other_cluster(first.cluster, other.cluster):
            raise UserError(
                f"CONFIG: {first.name} runs on {first.cluster.gpu.name}, the cluster of {other.name} is another: {differing}; a calibration is "
                "one cluster's: give the runs of one"
            )


def _beside_cluster(configs: Sequence[Path | str], overrides: Sequence[str]) -> Path | None:
    """The file next to the one cluster file that the configs name; None where they do not name exactly one."""
    files = {cluster_file(config, overrides) for config in configs}
    (found, *more) = files
    return None if found is None or more else found.with_name(found.stem + SUFFIX)


def _require_output() -> None:
    raise UserError(
        "--output: missing; the configs do not name one cluster file, next to which it would be written: give the file to write, or --dry-run"
    )


def _history(place: Path) -> tuple[EarlierFit, ...]:
    """The fits before the next one, the latest last."""
    if not place.exists():
        return ()
    known = read_calibration(place)
    if not known.runs:
        return known.history
    latest = EarlierFit(
        date=known.date, runs=len(known.runs), terms=known.terms, left_out_percent=known.left_out_percent
    )
    return (*known.history, latest)


def _write(place: Path, posterior: Posterior) -> None:
    with naming_the_disk(place):
        write_atomically(place, calibration_text(posterior).encode())


# Doubt about one measured run: whether `predict calibrate` would take it.

CALIBRATION = Path("cluster.calibration")
"""Key of a cluster's file that names its calibration."""


def doubt_of(step: MeasuredStep, run: TrainingRun, known: Posterior | None, option: str) -> str:
    """Why a step may be disturbed, or of another run than this one without calibration; empty where it is as expected,
    also by the runs that the cluster's calibration rests on. UserError for a step in another unit; `option` gave it."""
    given = MeasuredRun(name=run.name, runs=(run,), measured_us=step.step_us, noise=step.noise)
    require_units([given], option)
    if step.noisy:
        return noise_warning(step)
    held = _held(known)
    try:
        explained_fit([*held, given], option=option)
    except UserError as error:
        beside = "together with the runs that the cluster's calibration rests on: " if held else ""
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


# The choice of runs to measure: those that stand for the others, by the plans alone.

RULE = (
    "one after the other, the run that brings all runs nearest to one of those chosen, by how each depends on the terms (medoids); no "
    "measured time is looked at"
)


def medoids(slopes: Floats, count: int) -> list[int]:
    """Places of `count` runs, at most all but one, by RULE; `slopes` are derivatives by the terms, shape (runs, terms). The ends of the
    space would show more of single terms, but there a step is least like what the terms say of it."""
    scaled = slopes * prior_deviations()
    distances = np.linalg.norm(scaled[:, np.newaxis] - scaled, axis=-1)
    nearest = np.full(len(slopes), np.inf)
    chosen: list[int] = []
    for _ in range(min(count, len(slopes) - 1)):
        left = np.minimum(nearest[:, np.newaxis], distances).sum(axis=0)
        left[chosen] = np.inf
        chosen.append(int(np.argmin(left)))
        nearest = np.minimum(nearest, distances[:, chosen[-1]])
    return chosen


def spread_evenly(items: Sequence[int], most: int) -> list[int]:
    """Up to `most` of the items, at even distances."""
    every = max(1, -(-len(items) // most))
    return list(items[::every])
