"""Error against number of sampled rows: `python -m regressors.accuracy.rows_against_error --measurements DIR`, DIR with aiconfigurator/.

A published table stands in for a device: "timing" a row is looking it up. The shipped kind of model is fitted to more and
more rows, chosen by `regressors.active.choice` or at random, and scored on a fifth of the table that neither may choose.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regressors.active.choice import Timed, Untimed, batch_rows, fill_space, next_rows
from regressors.dataset.training_data import TrainingData, training_data
from regressors.features.arrays import Floats
from regressors.models.candidates import BLEND, fit_candidate
from sampling.arguments import Parser
from sampling.command_line import exit_code_of
from sampling.errors import SamplesError
from sampling.importers import aiconfigurator
from sampling.importers.storing import cluster_of, good_samples
from sampling.importers.table import ImportRequest, Table
from sampling.number_text import count, plain, whole_percent
from sampling.progress import progress_display

VERSION = 1
TABLES = {"gemm": "gemm", "context_attention": "attention", "moe": "moe"}
DTYPE = "bf16"
SIZES = (50, 100, 200, 350, 500, 700, 1000, 1500, 2000, 3000)
SEEDS = (1, 2, 3)
TARGET = 5.0
"""Error in percent at which the numbers of rows are compared."""
TEST_SHARE = 0.2
MOST_CANDIDATES = 12_000
"""Largest number of rows to choose from, drawn at random: on a device, too, not every shape is a candidate."""
CHOSEN = "chosen"

Places = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, slots=True)
class Curves:
    """MAPE in percent on one table, by number of `rows` fitted: `chosen` ones, and `random` ones [seeds, rows]."""

    table: str
    rows: tuple[int, ...]
    chosen: tuple[float, ...]
    random: tuple[tuple[float, ...], ...]

    @property
    def random_mean(self) -> tuple[float, ...]:
        return tuple(float(errors) for errors in np.mean(self.random, axis=0))

    @property
    def chosen_reaches(self) -> float | None:
        return reaches(self.rows, self.chosen, TARGET)

    @property
    def random_reaches(self) -> float | None:
        return reaches(self.rows, self.random_mean, TARGET)

    @property
    def ratio(self) -> float | None:
        """Chosen rows needed to reach TARGET over random rows needed; None if either never reaches it."""
        chosen, random = self.chosen_reaches, self.random_reaches
        return chosen / random if chosen and random else None


def reaches(rows: Sequence[int], errors: Sequence[float], target: float) -> float | None:
    """Number of rows from which the error stays below the target, interpolated in logarithms; None if it never does."""
    above = [place for place, error in enumerate(errors) if error >= target]
    if not above:
        return float(rows[0])
    last = above[-1]
    if last == len(rows) - 1:
        return None
    (few, many), (high, low) = np.log(rows[last : last + 2]), np.log(errors[last : last + 2])
    return float(np.exp(few + (many - few) * (high - np.log(target)) / (high - low)))


def measure(tables: Mapping[str, TrainingData], *, jobs: int) -> list[Curves]:
    """The curves of every table, computed in parallel over tables and ways to choose rows."""
    import joblib

    ways: list[str | int] = [CHOSEN, *SEEDS]
    tasks = [(name, seed_or_chosen) for name in tables for seed_or_chosen in ways]
    parallel = joblib.Parallel(n_jobs=max(1, min(jobs, len(tasks))), return_as="generator")
    results: Iterator[Any] = parallel(
        joblib.delayed(curve)(tables[name], seed_or_chosen) for name, seed_or_chosen in tasks
    )
    found: dict[tuple[str, str | int], tuple[float, ...]] = {}
    with progress_display("choosing") as progress:
        for count, (task, errors) in enumerate(zip(tasks, results, strict=True), start=1):
            found[task] = errors
            progress(count, len(tasks), f"{task[0]}, {'chosen' if task[1] == CHOSEN else f'random {task[1]}'}")
    return [
        Curves(
            table=name,
            rows=SIZES[: len(found[name, CHOSEN])],
            chosen=found[name, CHOSEN],
            random=tuple(found[name, seed] for seed in SEEDS),
        )
        for name in tables
    ]


def curve(data: TrainingData, seed_or_chosen: str | int) -> tuple[float, ...]:
    """MAPE at each of SIZES up to the size of the table, with rows CHOSEN or drawn with the seed `seed_or_chosen`."""
    order = np.random.default_rng(0).permutation(len(data))
    test_rows = round(TEST_SHARE * len(data))
    test, pool = order[:test_rows], order[test_rows : test_rows + MOST_CANDIDATES]
    sizes = [size for size in SIZES if size <= len(pool)]
    if seed_or_chosen == CHOSEN:
        rows = choose_rows(data, pool, sizes[-1])
    else:
        rows = np.random.default_rng(seed_or_chosen if isinstance(seed_or_chosen, int) else 0).permutation(
            order[test_rows:]
        )[: sizes[-1]]
    return tuple(_mape(data, rows[:size], test) for size in sizes)


def choose_rows(data: TrainingData, pool: Places, count: int) -> Places:
    """Rows in the order in which a session would time them, if all cost the same."""
    first = fill_space(data.features[pool], batch_rows(0))
    rows, left = pool[first], np.delete(pool, first)
    while len(rows) < count:
        timed = Timed(terms=data.terms[rows], features=data.features[rows], time_us=data.time_us[rows])
        untimed = Untimed(terms=data.terms[left], features=data.features[left], cost_s=np.ones(len(left)))
        picked = next_rows(timed, untimed, min(batch_rows(len(rows)), count - len(rows))).places
        rows, left = np.concatenate([rows, left[picked]]), np.delete(left, picked)
    return rows


def _mape(data: TrainingData, rows: Places, test: Places) -> float:
    model = fit_candidate(BLEND, data.terms[rows], data.features[rows], data.time_us[rows])
    predicted: Floats = model.time_us(data.terms[test], data.features[test])
    return float(100 * np.abs(predicted / data.time_us[test] - 1).mean())


def published_tables(path: Path, system: str) -> dict[str, TrainingData]:
    """GEMM, attention and MoE tables of one system in DTYPE; SamplesError if there is none."""
    tables = {}
    for table in aiconfigurator.read(ImportRequest(path=path, system=system)):
        family = TABLES.get(table.name.split()[0])
        if family and (data := _data_of(table)):
            tables[family] = data
    if not tables:
        raise SamplesError(f"{path}: none of {', '.join(TABLES.values())} of {system} in {DTYPE}; try another --system")
    return tables


def _data_of(table: Table) -> TrainingData | None:
    cluster = cluster_of(table)
    good = [sample for sample in good_samples(table) if sample.call.fields().get("dtype") == DTYPE]
    found = training_data((sample, cluster) for sample in good)
    return found[0] if found else None


def as_json(system: str, curves: Sequence[Curves]) -> dict[str, Any]:
    rows = [
        asdict(of) | {"chosen_reaches": of.chosen_reaches, "random_reaches": of.random_reaches, "ratio": of.ratio}
        for of in curves
    ]
    return {"version": VERSION, "system": system, "target_percent": TARGET, "tables": rows}


def as_text(system: str, curves: Sequence[Curves]) -> Iterator[str]:
    yield f"{system}: mean error (%) on a random fifth of the table, by number of rows fitted"
    yield ""
    sizes = max((of.rows for of in curves), key=len)
    yield f"{'rows':<19}" + "".join(f"{size:>7}" for size in sizes) + f"   under {plain(TARGET)} % from"
    for of in curves:
        for name, errors, rows in (
            (CHOSEN, of.chosen, of.chosen_reaches),
            ("random", of.random_mean, of.random_reaches),
        ):
            reached = f"{count(rows)} rows" if rows else "not reached"
            yield f"{of.table:<12}{name:<7}" + "".join(f"{error:7.2f}" for error in errors) + f"   {reached}"
        if of.ratio:
            yield f"{'':<12}chosen needs {whole_percent(of.ratio)} of the rows that random ones need"


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="python -m regressors.accuracy.rows_against_error",
        description="Rows against error on a published table, for rows chosen one batch after another and for random ones.",
    )
    add = made.add_argument
    add("--measurements", type=Path, required=True, metavar="DIR", help="folder that holds aiconfigurator/")
    add("--system", default="h100_sxm", help="whose tables (default: %(default)s)")
    add("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: all cores)")
    add("--json", action="store_true", help="machine-readable result on stdout")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    def work() -> int:
        options = parser().parse_args(arguments)
        curves = measure(
            published_tables(options.measurements / aiconfigurator.SOURCE, options.system), jobs=options.jobs
        )
        if options.json:
            print(json.dumps(as_json(options.system, curves), indent=1))
        else:
            print("\n".join(as_text(options.system, curves)))
        return 0

    return exit_code_of(work)


if __name__ == "__main__":
    sys.exit(main())
