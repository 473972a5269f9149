"""The accuracy benchmark: models of our own samples and of published tables, each refitted without its held-out rows."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regressors.accuracy.report import Scored, as_json, quarantine_row
from regressors.accuracy.score import MANY_PREDICTIONS, Score, score_without
from regressors.accuracy.transfer import transfers
from regressors.accuracy.units import Unit, own_units, published_units
from regressors.dataset.splits import SPLITS, hold_outs
from regressors.features.arrays import Mask
from regressors.fitting.settings_search import Best
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


def benchmark(profiles: Path, published: Path | None) -> dict[str, Any]:
    """The report on every profile under `profiles` and the tables under `published`; SamplesError if there are none."""
    units = [*own_units(profiles), *(published_units(published) if published else ())]
    if not units:
        raise SamplesError(
            f"{profiles}: no samples to test on; run {sampling_command()}, or give a folder with --measurements"
        )
    with progress_display("testing") as progress:
        scored = score_units(units, jobs=os.cpu_count() or 1, progress=progress)
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


def score_units(units: Sequence[Unit], *, jobs: int, progress: Progress) -> list[Scored]:
    """Every unit on each of its splits, in parallel; the largest first, so that no process is left with them at the end."""
    import joblib

    tasks = [(place, split, mask) for place, unit in enumerate(units) for split, mask in _splits(unit)]
    tasks.sort(key=lambda task: -len(task[2]))
    parallel = joblib.Parallel(n_jobs=max(1, min(jobs, len(tasks))), return_as="generator_unordered")
    scores: list[dict[str, Score]] = [{} for _ in units]
    searched: list[dict[str, Best]] = [{} for _ in units]
    done: Iterator[Any] = parallel(joblib.delayed(_score)(*task, *_work(units[task[0]], task[1])) for task in tasks)
    for count, (place, split, score, bests) in enumerate(done, start=1):
        scores[place][split] = score
        if split == SPLITS[0]:
            searched[place] = bests
        progress(count, len(tasks), f"{units[place].operator}, {split}")
    return [
        Scored(
            group=unit.group,
            operator=unit.operator,
            scores={split: of[split] for split in SPLITS if split in of},
            searched=bests,
        )
        for unit, of, bests in zip(units, scores, searched, strict=True)
    ]


def _splits(unit: Unit) -> Iterator[tuple[str, Mask]]:
    if unit.data is not None:
        yield from hold_outs(unit.data, unit.family).items()


def _work(unit: Unit, split: str) -> tuple[Any, Sequence[Call], Cluster | None]:
    """The arguments of `score_without` besides the mask; predictions are timed once per unit."""
    return unit.data, unit.calls[:MANY_PREDICTIONS] if split == SPLITS[0] else (), unit.cluster


def _score(
    place: int, split: str, mask: Mask, data: Any, calls: Any, cluster: Any
) -> tuple[int, str, Score, dict[str, Best]]:
    return place, split, *score_without(data, mask, calls, cluster)
