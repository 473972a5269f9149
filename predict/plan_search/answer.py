"""The ranked plans of a search, each with its whole prediction, its cost and its ratio to the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np

from predict.interval import Interval, width_of_ratio, without_cause
from predict.ledger.training_cost import Price, TrainingCost, training_cost
from predict.plan_search.axes import Question
from predict.plan_search.options import Objective
from predict.plan_search.pricing import Workers
from predict.plan_search.search import LONGEST_ROUND, SLOWER, Found, Ranked, in_words, price_plans
from predict.prices.published_constants import PLAN_SETTING
from predict.run.model_flops import tokens_per_step
from predict.run.training_run import TrainingRun
from predict.step.composition_error import published_spread
from predict.step.interval import CallKind, kind_shifts
from predict.step.prediction import Prediction
from regressors.features.arrays import Floats

# Ties: plans whose times cannot be distinguished, by the interval of their ratio.
#
# Two plans of one model on one cluster share most of what their intervals hold. One kind of call that is slower than predicted slows
# both, each by its own share of the step, so that only the difference of the shares is left in the ratio; and of the composition
# errors, whose terms add in quadrature, only those terms that the plans do not share. Each setting in which the plans differ adds
# an error of its own (PLAN_SETTING), as much smaller as samples make the composition error. What remains adds in quadrature, with
# the noise of repeated measurements.

REPEATS = 0.02
"""Half-width in log time by which two measurements of one run on the same nodes differ: 0.1 to 2 % in published repeats."""
DIVIDING = ("tp", "sp", "pp", "vpp", "cp", "cp_method", "ep", "etp", "zero", "shard", "recompute", "recompute_modules")
"""Settings of the plan that divide the work or repeat it; the schedule follows from vpp."""
MOST_OF_IT = 0.5
"""Share of a ratio's variance from which on one kind of call is what to time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio(Interval):
    """The figure that plans are ranked by, of a plan over that of the best one, with its 90 % bounds."""

    widest: CallKind | None
    """The kind of call whose error moves the ratio most, if any does."""
    share: float
    """The share of the ratio's variance that it makes."""

    @property
    def tied(self) -> bool:
        """Whether the plan may be the better one."""
        return self.low <= 1.0

    @property
    def overlap(self) -> float:
        """Share by which the intervals of the two plans overlap once their common errors are taken out: 1 where their medians are
        the same, 0 from where they only touch, which is where the plan is no longer tied."""
        if self.median <= 1.0:
            return 1.0
        width = self.half_width_log
        return max(0.0, 1 - math.log(self.median) / width) if width else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """A plan's figure, and its errors as shares of it."""

    value: float
    half_widths: Mapping[CallKind, float] = field(default_factory=dict)
    """Half-width of each kind of call, signed: positive where a slower kind makes a slower step, as all but noise does."""
    composition_error: float = 0.0
    repeats: float = 0.0
    per_setting: float = 0.0
    """Error for each setting in which another plan differs."""
    settings: tuple[Any, ...] = ()
    """Those that divide the work or change how it runs; in the same order for all plans."""


def contender(prediction: Prediction, objective: Objective) -> Contender:
    """A prediction as a contender; one for memory has no errors of times."""
    value = float(objective.value(prediction.run, us_per_token(prediction), prediction.memory.point_bytes))
    if not objective.timed:
        return Contender(value=value)
    shifts = kind_shifts(prediction.timeline.order, prediction.ranks)
    return Contender(
        value=value,
        half_widths={kind: (above - below) / 2 / prediction.median_us for kind, (below, above) in shifts.items()},
        composition_error=prediction.composition_error,
        repeats=REPEATS,
        per_setting=PLAN_SETTING.value * prediction.composition_error / published_spread(prediction.run),
        settings=_setting_values(prediction.run),
    )


def _setting_values(run: TrainingRun) -> tuple[Any, ...]:
    """dp is not among them, which the others leave; nor is what evens out the stages."""
    batch = (run.batch.global_, run.batch.micro, run.batch.seq_len)
    plan = tuple(getattr(run.plan, name) for name in DIVIDING)
    return (run.cluster.gpu.name, run.cluster.nodes, run.precision, *batch, *plan, *astuple(run.execution))


def us_per_token(prediction: Prediction) -> float:
    return prediction.median_us / tokens_per_step(prediction.run)


def ratio(best: Contender, other: Contender) -> Ratio:
    """The ratio of another plan to the best one."""
    kinds = {*best.half_widths, *other.half_widths}
    left = {kind: other.half_widths.get(kind, 0.0) - best.half_widths.get(kind, 0.0) for kind in sorted(kinds)}
    own_terms = without_cause(other.composition_error, best.composition_error)
    differing = sum(own != others for own, others in zip(other.settings, best.settings, strict=True))
    of_settings = max(best.per_setting, other.per_setting) * math.sqrt(differing)
    width = width_of_ratio(other.repeats, own_terms, of_settings, *left.values())
    found = Interval.from_log(other.value / best.value, width)
    widest = max(left, key=lambda kind: abs(left[kind]), default=None)
    return Ratio(
        median=found.median,
        low=found.low,
        high=found.high,
        widest=widest,
        share=left[widest] ** 2 / width**2 if widest and width else 0.0,
    )


def experiment(nearest: Ratio, place: int) -> str:
    """The experiment that would distinguish the best plan from a tied one, which is at `place` of the ranking."""
    if nearest.widest is None or nearest.share < MOST_OF_IT:
        return f"measure plans 1 and {place}, 20 steps each: their uncertainty is spread over many kinds of calls"
    name, phase = nearest.widest
    return (
        f"sample {name} ({phase}) in the shapes of plans 1 and {place}: its error makes {nearest.share:.0%} of the uncertainty "
        "between them (`predict calls` lists the shapes)"
    )


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
    floors = _floors(found)
    plans = [(of, plan) for of, own in enumerate(found.surveys) for plan in range(len(own.space.rows))]
    order = np.lexsort((floors[:, 1], floors[:, 0]))
    left = [index for index in order.tolist() if plans[index] not in found.judged]
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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RankedPlan:
    """One of the best plans."""

    settings: Mapping[str, Any]
    """Key path → value of the keys that were searched."""
    question: Question
    """The one it is a plan of; its `config` writes the plan's."""
    prediction: Prediction
    ratio: Ratio
    same: tuple[Mapping[str, Any], ...]
    """The keys, with their values, in which other plans of the same time and memory differ from it."""
    cost: TrainingCost | None
    """What a training of the tokens asked about takes; None without tokens."""

    @property
    def energy_j_per_token(self) -> float | None:
        """Energy of the GPUs at the limit of their boards; None where the hardware file states no power."""
        cluster = self.prediction.run.cluster
        if cluster.gpu.power_w is None:
            return None
        return cluster.gpu.power_w * cluster.world_size / self.prediction.tokens_per_second


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Answer:
    """The answer of a search. `plans` are the best, the best first."""

    found: Found
    plans: tuple[RankedPlan, ...]
    experiment: str
    """The one that would separate the best plan from the nearest that is tied with it; empty where none is."""
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
    def tied(self) -> Sequence[RankedPlan]:
        return [plan for plan in self.plans[1:] if plan.ratio.tied]


def answer(
    found: Found, *, tokens: float | None = None, price: Price | None = None, min_overlap: float | None = None
) -> Answer:
    """The answer of a search; `tokens` and `price` are those of a whole training. With `min_overlap`, plans whose interval
    overlaps the best one's by less are left out."""
    predictions = [found.estimate(found.run(ranked)) for ranked in found.best]
    contenders = [contender(each, found.objective) for each in predictions]
    ratios = [ratio(contenders[0], own) for own in contenders]
    plans = tuple(
        RankedPlan(
            settings=_settings(found, ranked),
            question=found.surveys[ranked.survey].space.question,
            prediction=prediction,
            ratio=own,
            same=tuple(_differing(_settings(found, other), _settings(found, ranked)) for other in others),
            cost=_cost(prediction, tokens, price),
        )
        for (ranked, *others), prediction, own in zip(found.alike[: found.top], predictions, ratios, strict=True)
    )
    kept = tuple(
        plan for plan in plans if min_overlap is None or (plan.ratio.tied and plan.ratio.overlap >= min_overlap)
    )
    if len(kept) < len(plans):
        apart = next(plan for plan in plans if plan not in kept)
        found.leave_out(
            APART, len(plans) - len(kept), f"an overlap of {apart.ratio.overlap:.2f}: {in_words(apart.settings)}"
        )
    tied = [(place, plan.ratio) for place, plan in enumerate(kept, 1) if place > 1 and plan.ratio.tied]
    return Answer(found=found, plans=kept, experiment=experiment(tied[0][1], tied[0][0]) if tied else "")


def _settings(found: Found, ranked: Ranked) -> Mapping[str, Any]:
    return found.surveys[ranked.survey].space.settings(ranked.outcome.number)


def _differing(settings: Mapping[str, Any], others: Mapping[str, Any]) -> Mapping[str, Any]:
    return {path: value for path, value in settings.items() if value != others[path]}


def _cost(prediction: Prediction, tokens: float | None, price: Price | None) -> TrainingCost | None:
    if tokens is None:
        return None
    return training_cost(prediction.run, prediction.step_time, tokens=tokens, price=price)
