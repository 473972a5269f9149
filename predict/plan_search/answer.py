"""The answer of a search: the ranked plans of a training run, or combinations of another kind of config, each with its whole prediction and
its ratio to the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from predict.kinds import TRAINING, EnumeratedKind, Values
from predict.ledger.training_cost import Price, TrainingCost, training_cost
from predict.plan_search.axes import Question
from predict.plan_search.legal import LeftOut
from predict.plan_search.pricing import Workers
from predict.plan_search.search import LONGEST_ROUND, SLOWER, Found, Ranked, in_words, open_all, price_plans
from predict.plan_search.sweep import SweptRows
from predict.plan_search.ties import Contender, Ratio, contender, experiment, ratio
from predict.run.model_flops import tokens_per_step
from predict.step.prediction import Prediction
from regressors.features.arrays import Floats
from sampling.number_text import significant

# The front of time, memory and GPUs: plans of which none other is better in one of the three and no worse in the others.
#
# It is exact too: a plan is priced unless a priced one is no worse than the plan's floors in all three.


@dataclass(frozen=True, kw_only=True, slots=True)
class FrontPlan:
    """A plan of the front."""

    settings: Mapping[str, Any]
    step_us: float
    us_per_token: float
    memory_bytes: float
    gpus: int


def front(found: Found, workers: Workers) -> tuple[FrontPlan, ...]:
    """The front over all plans of a search, the fastest first; what it prices counts among the search's priced plans."""
    open_all(found, workers)
    floors = _floors(found)
    plans = [(of, plan) for of, own in enumerate(found.surveys) for plan in range(len(own.space.rows))]
    single = np.concatenate([own.opening.single for own in found.surveys])
    order = np.lexsort((floors[:, 1], floors[:, 0]))
    left = [index for index in order.tolist() if single[index] and plans[index] not in found.judged]
    before = found.priced
    while left:
        left = _undominated(floors, left, _priced(found))
        chosen, left = left[:LONGEST_ROUND], left[LONGEST_ROUND:]
        price_plans(found, [plans[index] for index in chosen], workers)
    found.take_back(SLOWER, found.priced - before)
    priced = _priced(found)
    best = [ranked for ranked, own in zip(found.ranked, priced, strict=True) if not _is_dominated(own, priced)]
    made = [
        FrontPlan(
            settings=found.surveys[ranked.survey].space.settings(ranked.outcome.number),
            step_us=ranked.outcome.step_us,
            us_per_token=ranked.outcome.step_us / tokens_per_step(found.run(ranked)),
            memory_bytes=ranked.outcome.memory_bytes,
            gpus=found.run(ranked).cluster.world_size,
        )
        for ranked in best
    ]
    return tuple(sorted(made, key=lambda plan: (plan.us_per_token, plan.memory_bytes, plan.gpus)))


def _floors(found: Found) -> Floats:
    """Time per token, memory and GPUs that each plan needs at least, shape (plans, 3)."""
    parts = []
    for own, times in zip(found.surveys, found.time_floors, strict=True):
        base = own.space.question.base
        tokens = own.space.column("batch.global") * own.space.column("batch.seq_len")
        gpus = np.full(len(times), float(base.cluster.world_size))
        parts.append(np.stack([times / tokens, own.memory_floors, gpus], axis=1))
    return np.concatenate([*parts, np.zeros((0, 3))])


def _priced(found: Found) -> Floats:
    """The same of the plans that were priced and fit."""
    rows = [
        (
            ranked.outcome.step_us / tokens_per_step(found.run(ranked)),
            ranked.outcome.memory_bytes,
            float(found.run(ranked).cluster.world_size),
        )
        for ranked in found.ranked
    ]
    return np.array(rows).reshape(-1, 3)


def _undominated(floors: Floats, left: Sequence[int], priced: Floats) -> list[int]:
    rows = np.array(left)
    keep = np.ones(len(rows), dtype=bool)
    for one in priced:
        keep &= (floors[rows] < one).any(axis=1)
    return [int(row) for row in rows[keep]]


def _is_dominated(own: Floats, priced: Floats) -> bool:
    return bool(((priced <= own).all(axis=1) & (priced < own).any(axis=1)).any())


APART = "apart: the interval of its time overlaps the best one's by less than --min-interval-overlap"


Predicted = TypeVar("Predicted")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RankedPrediction(Generic[Predicted]):
    """One of the best predictions."""

    settings: Values
    """Key path → value of the keys that were searched."""
    prediction: Predicted
    ratio: Ratio
    """What they are ranked by, over that of the best one."""


# Plans of a training run.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RankedPlan(RankedPrediction[Prediction]):
    """One of the best plans."""

    question: Question
    """The one it is a plan of; its `config` writes the plan's."""
    same: tuple[Mapping[str, Any], ...]
    """The keys, with their values, in which other plans of the same time and memory differ from it."""
    cost: TrainingCost | None
    """What a training of the tokens asked about takes; None without tokens."""

    @property
    def energy_j_per_token(self) -> float | None:
        """Energy of the GPUs' boards; None where the hardware file states no power."""
        power = self.prediction.power
        if power is None:
            return None
        return power.mean_w * self.prediction.run.cluster.world_size / self.prediction.tokens_per_second


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Answer:
    """The answer of a search for plans. `plans` are the best, the best first."""

    found: Found
    plans: tuple[RankedPlan, ...]
    experiment: str
    """The one that would separate the best plan from the nearest that is tied with it; empty where none is."""
    faster_at_risk: tuple[RankedPlan, ...] = ()
    """Better plans that may not fit, and stand behind so many that fit surely and may be as good that they are not among `plans`."""
    front: tuple[FrontPlan, ...] | None = None
    """The front of time, memory and GPUs; None unless it was asked for."""
    measured_us: tuple[float | None, ...] = ()
    """Measured steps of the first plans; None for one that failed or cannot be run here."""

    @property
    def regret(self) -> float | None:
        """The measured time per token of the first plan over the least of all that were measured, less 1."""
        measured = [
            time_us and time_us / tokens_per_step(plan.prediction.run)
            for time_us, plan in zip(self.measured_us, self.plans, strict=False)
        ]
        least = min((each for each in measured if each), default=None)
        return measured[0] / least - 1 if measured and measured[0] and least else None

    @property
    def kind(self) -> str:
        return TRAINING

    @property
    def ranked(self) -> Sequence[RankedPlan]:
        return self.plans

    @property
    def objective(self) -> str:
        return self.found.objective.name

    @property
    def meaning(self) -> str:
        return self.found.objective.meaning

    @property
    def timed(self) -> bool:
        return self.found.objective.timed

    @property
    def space(self) -> Mapping[str, int]:
        surveys = self.found.surveys
        plans, legal = sum(own.space.plans for own in surveys), sum(own.legal for own in surveys)
        return {"plans": plans, "legal": legal, "fit": self.found.fit, "priced": self.found.priced}

    @property
    def left_out(self) -> Mapping[str, LeftOut]:
        return self.found.left_out

    @property
    def seconds(self) -> float:
        return self.found.seconds

    @property
    def complete(self) -> bool:
        return self.found.complete


def answer(
    found: Found,
    *,
    top: int,
    tokens: float | None = None,
    price: Price | None = None,
    min_overlap: float | None = None,
) -> Answer:
    """The answer of a search, with the best `top` plans; `tokens` and `price` are those of a whole training. With `min_overlap`, plans
    whose interval overlaps the best one's by less are left out."""
    every = sure_first([Estimated.of(found, alike) for alike in found.alike[: found.top]])
    best = every[0].contender
    considered = [
        RankedPlan(
            settings=_settings(found, each.ranked),
            question=found.surveys[each.ranked.survey].space.question,
            prediction=each.prediction,
            ratio=ratio(best, each.contender),
            same=tuple(_differing(_settings(found, other), _settings(found, each.ranked)) for other in each.others),
            cost=None if tokens is None else training_cost(each.prediction, tokens=tokens, price=price),
        )
        for each in every
    ]
    plans = considered[:top]
    kept = tuple(
        plan for plan in plans if min_overlap is None or (plan.ratio.tied and plan.ratio.overlap >= min_overlap)
    )
    if len(kept) < len(plans):
        apart = next(plan for plan in plans if plan not in kept)
        found.leave_out(
            APART,
            len(plans) - len(kept),
            f"an overlap of {significant(apart.ratio.overlap)}: {in_words(apart.settings)}",
        )
    tied = [(place, plan.ratio) for place, plan in enumerate(kept, 1) if place > 1 and plan.ratio.tied]
    return Answer(
        found=found,
        plans=kept,
        experiment=experiment(tied[0][1], tied[0][0]) if tied else "",
        faster_at_risk=tuple(plan for plan in considered[top:] if plan.ratio.median < 1),
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Estimated:
    """A plan of a search with its full estimate, and the `others` that are equal to it."""

    ranked: Ranked
    others: Sequence[Ranked]
    prediction: Prediction
    contender: Contender

    @classmethod
    def of(cls, found: Found, alike: Sequence[Ranked]) -> Estimated:
        prediction = found.estimate(found.run(alike[0]))
        return cls(
            ranked=alike[0],
            others=alike[1:],
            prediction=prediction,
            contender=contender(prediction, found.objective),
        )

    @property
    def fits_surely(self) -> bool:
        return self.prediction.memory.verdict == "FITS"


def sure_first(plans: Sequence[Estimated]) -> list[Estimated]:
    """The plans, the best first; down to the last that may be as good as the first, those that fit surely stand before the others."""
    last = max(place for place, each in enumerate(plans) if ratio(plans[0].contender, each.contender).tied)
    return [*sorted(plans[: last + 1], key=lambda plan: not plan.fits_surely), *plans[last + 1 :]]


def _settings(found: Found, ranked: Ranked) -> Mapping[str, Any]:
    return found.surveys[ranked.survey].space.settings(ranked.outcome.number)


def _differing(settings: Mapping[str, Any], others: Mapping[str, Any]) -> Mapping[str, Any]:
    return {path: value for path, value in settings.items() if value != others[path]}


# Combinations of another kind of config, every one of which is predicted.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RankedRows(Generic[Predicted]):
    """The answer of a search that predicts every combination. `best` are the best ones, the best first."""

    swept: SweptRows[Predicted]
    """All combinations, the best first, and then those that cannot be chosen."""
    objective: str
    best: tuple[RankedPrediction[Predicted], ...]
    seconds: float
    complete: bool = True
    timed: bool = True
    experiment: str = ""

    @property
    def kind(self) -> str:
        return self.swept.kind.name

    @property
    def ranked(self) -> Sequence[RankedPrediction[Predicted]]:
        return self.best

    @property
    def meaning(self) -> str:
        return self.swept.kind.orders[self.objective].meaning

    @property
    def space(self) -> Mapping[str, int]:
        rows, predicted, fit = len(self.swept.rows), len(self.swept.predictions), len(self.swept.best)
        return {"plans": rows, "legal": predicted, "fit": fit, "priced": predicted}

    @property
    def left_out(self) -> Mapping[str, LeftOut]:
        found: dict[str, LeftOut] = {}
        for row in self.swept.left_out:
            reason = row.reason.splitlines()[0].partition(" needs ")[0]
            one = LeftOut(count=1, example=f"{row.reason}: {in_words(row.settings)}")
            found[reason] = found[reason] + one if reason in found else one
        return found


def ranked_rows(
    of: EnumeratedKind[Any, Predicted], swept: SweptRows[Predicted], objective: str, *, top: int, seconds: float
) -> RankedRows[Predicted]:
    """The best of combinations by an objective of their kind."""
    ordered = swept.ordered(objective)
    predicted = [(row.settings, row.prediction) for row in ordered.best[:top] if row.prediction is not None]
    first = predicted[0][1]
    best = (
        RankedPrediction(settings=settings, prediction=each, ratio=of.ratio(first, each, objective))
        for settings, each in predicted
    )
    return RankedRows(swept=ordered, objective=objective, best=tuple(best), seconds=seconds)


SearchAnswer: TypeAlias = Answer | RankedRows[Any]


def tied(answer: SearchAnswer) -> Sequence[RankedPrediction[Any]]:
    """Those that may be as good as the best one."""
    return [plan for plan in answer.ranked[1:] if plan.ratio.tied]
