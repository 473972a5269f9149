"""The accuracy benchmark: models of our own samples and of published tables, each refitted without its held-out rows."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from regressors.accuracy.report import Scored, as_json, quarantine_row
from regressors.accuracy.score import MANY_PREDICTIONS, Score, score_without, transfers
from regressors.accuracy.units import Unit, own_units, published_units
from regressors.dataset.splits import SPLITS, hold_outs
from regressors.dataset.training_data import TrainingData
from regressors.features.arrays import Mask
from regressors.fitting.settings_search import LIBRARIES, Best
from regressors.models.candidates import DRAWN
from sampling.call import Call
from sampling.errors import SamplesError
from sampling.files.disk import append_line, naming_the_disk
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


# Scores of an interrupted benchmark: it takes most of an hour, and goes on where it stopped.

SOURCES = Path(__file__).parents[1]
Judged: TypeAlias = tuple[Score, Mapping[str, Best]]
"""The score of a table without some of its rows, and the settings of trees that were searched for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptScores:
    """Scores by the digest of all that they depend on, in a file that is removed once the report of all is written."""

    path: Path
    judged: dict[str, Judged]

    @classmethod
    def at(cls, path: Path) -> KeptScores:
        """Those in the file, without the lines that were cut off or that another version wrote."""
        lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
        return cls(path=path, judged=dict(found for line in lines if (found := _read(line))))

    def add(self, key: str, judged: Judged) -> None:
        score, bests = judged
        searched = {
            kind: [DRAWN[kind].index(best.settings), best.log_error, best.judged] for kind, best in bests.items()
        }
        with naming_the_disk(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                append_line(file, json.dumps([key, asdict(score), searched]))
        self.judged[key] = judged


def _read(line: str) -> tuple[str, Judged] | None:
    try:
        key, score, searched = json.loads(line)
        bests = {
            str(kind): Best(settings=DRAWN[kind][place], log_error=error, judged=judged)
            for kind, (place, error, judged) in searched.items()
        }
        return str(key), (Score(**score), bests)
    except (ValueError, TypeError, LookupError, AttributeError):
        return None


def digest_of(data: TrainingData, split: str, held_out: Mask) -> str:
    """The digest of a table's rows, of those held out, of their split, with which more is judged or less, and of the code that learns from
    the others."""
    digest = hashlib.sha256(_code())
    digest.update(split.encode())
    for array in (data.terms, data.features, data.time_us, data.shape, data.codes, held_out):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:24]


@cache
def _code() -> bytes:
    known: list[Any] = [(str(path.relative_to(SOURCES)), path.read_text()) for path in sorted(SOURCES.rglob("*.py"))]
    return json.dumps([*known, *((name, version(name)) for name in LIBRARIES)]).encode()
