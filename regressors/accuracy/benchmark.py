"""The accuracy benchmark: models of our own samples and of published tables, each refitted without its held-out rows."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regressors.accuracy.kept_scores import Judged, KeptScores, digest_of
from regressors.accuracy.report import Scored, as_json, quarantine_row
from regressors.accuracy.score import MANY_PREDICTIONS, score_without
from regressors.accuracy.transfer import transfers
from regressors.accuracy.units import Unit, own_units, published_units
from regressors.dataset.splits import SPLITS, hold_outs
from regressors.features.arrays import Mask
from sampling.call import Call
from sampling.errors import SamplesError
from sampling.files.places import sampling_command
from sampling.hardware.cluster import Cluster
from sampling.progress import Progress, progress_display

PHYSICAL = "physical checks"
"""Why rows of published tables are set aside."""
TITLE = "Accuracy of the time models"
NOTE = """\
The fit, the choice of model and the intervals never saw the held-out rows. Every published table counts the same, those of
collectives too. What being on another device adds to an interval was set on these transfers: their cover is not an independent
test of it."""


def benchmark(profiles: Path, published: Path | None, partial: Path) -> dict[str, Any]:
    """The report on every profile under `profiles` and the tables under `published`; SamplesError if there are none.

    The scores so far are in the file `partial`, from which the next goes on; remove it once the report is written.
    """
    units = [*own_units(profiles), *(published_units(published) if published else ())]
    if not units:
        raise SamplesError(
            f"{profiles}: no samples to test on; run {sampling_command()}, or give a folder with --measurements"
        )
    with progress_display("testing") as progress:
        kept = KeptScores.at(partial)
        scored = score_units(units, kept, jobs=os.cpu_count() or 1, progress=progress)
    return as_json(
        scored,
        title=TITLE,
        note=NOTE,
        date=time.strftime("%Y-%m-%d"),
        transfers=[asdict(transfer) for transfer in transfers(units)],
        quarantined=[
            quarantine_row(
                unit.group,
                unit.operator,
                unit.quarantined,
                why=f"{PHYSICAL}{', the whole table' if unit.data is None else ''}",
            )
            for unit in units
        ],
    )


def lost_tables(content: Mapping[str, Any], kept: Path) -> str:
    """The groups of a kept report with tables that a new one lacks, and how many; empty where it has all of them, or none is kept."""
    if not kept.is_file():
        return ""
    before, after = (
        {(" ".join(row["group"]), row["operator"]) for row in report["operators"]}
        for report in (json.loads(kept.read_text()), content)
    )
    lost = Counter(group for group, _ in before - after)
    return ", ".join(f"{group} ({count})" for group, count in sorted(lost.items()))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
    """A unit, by its place, to be judged on the rows that a split holds out."""

    place: int
    split: str
    held_out: Mask
    key: str


def score_units(units: Sequence[Unit], kept: KeptScores, *, jobs: int, progress: Progress) -> list[Scored]:
    """Every unit on each of its splits, in parallel; the largest first, so that no process is left with them at the end."""
    import joblib

    tasks = [*_tasks(units)]
    left = sorted((task for task in tasks if task.key not in kept.judged), key=lambda task: -len(task.held_out))
    parallel = joblib.Parallel(n_jobs=max(1, min(jobs, len(left))), return_as="generator_unordered")
    done: Iterator[Any] = parallel(joblib.delayed(_score)(task, *_work(units[task.place], task.split)) for task in left)
    for count, (task, judged) in enumerate(done, start=len(tasks) - len(left) + 1):
        kept.add(task.key, judged)
        progress(count, len(tasks), f"{units[task.place].operator}, {task.split}")
    found = {(task.place, task.split): kept.judged[task.key] for task in tasks}
    return [
        Scored(
            group=unit.group,
            operator=unit.operator,
            scores={split: found[place, split][0] for split in SPLITS if (place, split) in found},
            searched=found[place, SPLITS[0]][1] if (place, SPLITS[0]) in found else {},
        )
        for place, unit in enumerate(units)
    ]


def _tasks(units: Sequence[Unit]) -> Iterator[_Task]:
    for place, unit in enumerate(units):
        if unit.data is not None:
            for split, held_out in hold_outs(unit.data, unit.family).items():
                yield _Task(place=place, split=split, held_out=held_out, key=digest_of(unit.data, split, held_out))


def _work(unit: Unit, split: str) -> tuple[Any, Sequence[Call], Cluster | None]:
    """The arguments of `score_without` besides the mask; predictions are timed once per unit."""
    return unit.data, unit.calls[:MANY_PREDICTIONS] if split == SPLITS[0] else (), unit.cluster


def _score(task: _Task, data: Any, calls: Any, cluster: Any) -> tuple[_Task, Judged]:
    return task, score_without(data, task.held_out, calls, cluster)
