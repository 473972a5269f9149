"""Published, tuned plans beside the best plan that a search finds for the same job: `predict validate recipes`.

The job is the model, the cluster, the batch, the precision and the framework's settings; the plan is free. The published plan is in the
space of the search, with layouts and recomputed modules, so that the best plan is slower than it only where the published plan is said
not to fit.
"""

import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from predict import estimate
from predict.plan_search.axes import question_of
from predict.plan_search.compare import Difference, differences
from predict.plan_search.legal import legal_plans, run_of
from predict.plan_search.options import OBJECTIVES
from predict.plan_search.pricing import Workers
from predict.plan_search.search import SAME, best_plans, settings_json, survey
from predict.plan_search.ties import Ratio, contender, ratio
from predict.run.training_run import TrainingRun
from predict.serialise import each_picked, version_of
from predict.step.prediction import Prediction
from predict.validation.compared import Refused, grouped, mean_or_none
from predict.validation.published_models import model_of
from predict.validation.published_row import NotExpressibleError, PublishedRow
from predict.validation.published_runs import candidates
from predict.validation.published_software import COMPLETE, completeness, is_tuned, stack_of
from sampling.errors import InfeasibleError, UserError
from sampling.files.disk import naming_the_disk, write_atomically
from sampling.number_text import duration
from sampling.progress import Progress, silent

CONFIGURATION = (
    "model", "layers", "hidden", "seq_len", "task", "gpu", "gpu_mem_gb", "n_gpus", "precision",
    "tp", "pp", "vpp", "cp", "ep", "etp", "mbs", "gbs", "recompute", "recompute_detail",
)  # fmt: skip
"""Columns that agree where rows repeat one plan of one job, with other software: the newest of these rows counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BestPlan:
    """The fastest plan of a search whose expected peak fits."""

    settings: Mapping[str, Any]
    """Key path → value of the keys that were searched."""
    beside: Difference
    """The best plan beside the published one."""
    ratio: Ratio
    """The published plan's time over the best one's, with 90 % bounds that leave out the errors that both share."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """A published plan as predicted, and the best plan for the same job; None where no plan is said to fit."""

    row: PublishedRow
    published: Prediction
    best: BestPlan | None

    @property
    def best_us(self) -> float | None:
        return self.best.beside.other.median_us if self.best else None

    @property
    def gain(self) -> float | None:
        """Predicted time of the published plan over that of the best."""
        return self.published.median_us / self.best_us if self.best_us else None

    @property
    def plan(self) -> Mapping[str, Any] | None:
        return settings_json(self.best.settings) if self.best else None

    @property
    def offered(self) -> bool:
        """Whether the search may choose the published plan: its expected peak fits."""
        return self.published.memory.feasible


RecipeOutcome: TypeAlias = Recipe | Refused[PublishedRow]


def tuned_rows(rows: Sequence[PublishedRow]) -> list[PublishedRow]:
    """The complete rows whose plans their publisher tuned; of rows that agree in CONFIGURATION, the newest."""
    tuned = [row for row in rows if row.text("status") in ("", "ok") and is_tuned(row) and _is_complete(row)]
    repeats = grouped(tuned, lambda row: tuple(map(row.text, CONFIGURATION))).values()
    return [max(same, key=lambda row: (stack_of(row), row.text("date"))) for same in repeats]


def _is_complete(row: PublishedRow) -> bool:
    try:
        sparse = bool(row.number("experts") if row.text("layers") else model_of(row).experts)
        return completeness(row, sparse=sparse) == COMPLETE
    except NotExpressibleError:
        return False


Plans = Mapping[str, Any]
"""Key path → value of the keys that were searched; empty where no plan fits."""
FEWEST_ROWS = 4
"""Rows for which processes are worth their start."""


def judge_recipes(
    rows: Sequence[PublishedRow],
    progress: Progress = silent,
    *,
    save: Path | None = None,
    jobs: int | None = None,
) -> list[RecipeOutcome]:
    """The recipes of rows, each with the best plan of its job, searched by as many processes as there are cores, or `jobs`.

    Ctrl-C ends it early, with those that are done, if there are any. What is found is kept in `save`, from which the same rows go on.
    """
    judged: list[RecipeOutcome] = []
    known = kept_plans(save) if save else {}
    try:
        for row, found in zip(rows, _found(rows, known, jobs or os.cpu_count() or 1), strict=True):
            judged.append(found if isinstance(found, Refused) else _recipe(row, found))
            if save and not isinstance(found, Refused):
                known[digest(row)] = found
                keep_plans(save, known)
            progress(len(judged), len(rows), row.row_id)
    except KeyboardInterrupt:
        if not judged:
            raise
    return judged


def _found(
    rows: Sequence[PublishedRow], known: Mapping[str, Plans], jobs: int
) -> Iterator[Plans | Refused[PublishedRow]]:
    """The plan of each row, in their order; one that is known is not searched again."""
    left = [row for row in rows if digest(row) not in known]
    if jobs == 1 or len(left) < FEWEST_ROWS:
        found = map(best_plan, left)
    else:
        from joblib import Parallel, delayed

        # a worker that has grown by what searches keep is replaced by a new one; no row is lost by that
        warnings.filterwarnings("ignore", "A worker stopped", UserWarning)
        found = iter(Parallel(n_jobs=jobs, return_as="generator")(delayed(best_plan)(row) for row in left))
    for row in rows:
        yield known[digest(row)] if digest(row) in known else next(found)


def best_plan(row: PublishedRow) -> Plans | Refused[PublishedRow]:
    """The fastest plan for the job of a row."""
    try:
        published = _published(row)
    except (NotExpressibleError, InfeasibleError) as error:
        return Refused(row=row, why=str(error))
    # the best plan is no slower than the published one, which is in the space
    slowest_us = published.median_us if published.memory.feasible else math.inf
    own = survey(legal_plans(question_of(published.run)), max_memory=1.0, slowest_us=slowest_us)
    found = best_plans([own], OBJECTIVES["time"], NoSlower(slowest_us), top=1, workers=Workers(jobs=1))
    if not found.complete:
        raise KeyboardInterrupt
    (best,) = found.best or (None,)
    return found.surveys[0].space.settings(best.outcome.number) if best else {}


@dataclass(slots=True)
class NoSlower:
    """The estimate of plans among which the fastest is looked for: one that takes longer than a plan that fits is refused, and its memory,
    most of the work, is not counted."""

    slowest_us: float
    """µs of the fastest plan so far."""

    def __call__(self, run: TrainingRun) -> Prediction:
        """InfeasibleError for a slower plan."""
        prediction = estimate(run)
        if prediction.median_us > self.slowest_us * (1 + SAME):
            raise InfeasibleError(f"takes longer than {duration(self.slowest_us)}")
        if prediction.memory.point_bytes <= prediction.memory.capacity_bytes:
            self.slowest_us = min(self.slowest_us, prediction.median_us)
        return prediction


def _published(row: PublishedRow) -> Prediction:
    """The prediction of a published plan; of several runs that the row may stand for, the one whose time is in the middle."""
    predictions = sorted(map(estimate, candidates(row).runs), key=lambda one: one.median_us)
    return predictions[(len(predictions) - 1) // 2]


def _recipe(row: PublishedRow, plan: Plans) -> Recipe:
    """A row beside the best plan that was found for it."""
    published, objective = _published(row), OBJECTIVES["time"]
    if not plan:
        return Recipe(row=row, published=published, best=None)
    (beside,) = differences(published, [estimate(run_of(published.run, plan))])
    best = BestPlan(
        settings=plan,
        beside=beside,
        ratio=ratio(contender(beside.other, objective), contender(published, objective)),
    )
    return Recipe(row=row, published=published, best=best)


# The plans that were found, kept in a file from which an interrupted validation goes on.

FORMAT, VERSION = "steptime-recipes", 1
LARGEST_FILE = 2**24


def digest(row: PublishedRow) -> str:
    """A digest of a row: rows with equal cells stand for equal jobs."""
    return hashlib.sha256(repr(sorted(row.cells.items())).encode()).hexdigest()


def keep_plans(path: Path, known: Mapping[str, Plans]) -> None:
    """Write the plans that were found. UserError where the disk does not take them."""
    with naming_the_disk(path):
        write_atomically(path, json.dumps({"format": FORMAT, "version": VERSION, "plans": known}).encode())


def kept_plans(path: Path) -> dict[str, Plans]:
    """The plans in the file; none where there is no file yet. UserError for a file of another kind."""
    if not path.exists():
        return {}
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError
        content = json.loads(path.read_bytes())
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise ValueError
        return {str(name): dict(plan) for name, plan in content["plans"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"--save: {path} does not hold the plans of recipes; give another file") from None


def exploited(recipes: Sequence[Recipe]) -> list[Recipe]:
    """The recipes whose gain lies above the interval of its ratio, the largest gain first: there the search exploits an error of the
    model, as a plan that was tuned on the machine leaves no such gain."""
    beyond = [one for one in recipes if one.best and not one.best.ratio.tied]
    return sorted(beyond, key=lambda one: -(one.gain or 0.0))


def recipes_summary(recipes: Sequence[Recipe]) -> dict[str, Any]:
    """The figures of recipes; gains and ties are those of published plans that the search may choose."""
    chosen = [one for one in recipes if one.offered and one.best]
    gains = [one.gain for one in chosen if one.gain is not None]
    return {
        "rows": len(recipes),
        "out_of_memory": sum(one.published.memory.verdict == "OOM" for one in recipes),
        "gain_median": median(gains) if gains else None,
        "gain_worst": max(gains, default=None),
        "gain_least": min(gains, default=None),
        "tied_share": mean_or_none(one.best.ratio.tied for one in chosen if one.best),
    }


def expressed(outcomes: Sequence[RecipeOutcome]) -> list[Recipe]:
    """The recipes without the rows that cannot be expressed as a run."""
    return [one for one in outcomes if isinstance(one, Recipe)]


def recipes_json(outcomes: Sequence[RecipeOutcome]) -> dict[str, Any]:
    recipes = expressed(outcomes)
    return {
        "version": version_of("validate-recipes"),
        "summary": recipes_summary(recipes),
        "rows": each_picked(
            recipes,
            "row_id=row.row_id verdict=published.memory.verdict fits_probability=published.memory.fits_probability "
            "published_us=published.median_us best_us gain best=plan",
        ),
    }
