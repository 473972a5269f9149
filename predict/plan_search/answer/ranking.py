"""The ranked plans of a search, each with its whole prediction, its cost and its ratio to the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from predict.ledger.training_cost import Price, TrainingCost, training_cost
from predict.plan_search.answer.pareto import FrontPlan
from predict.plan_search.answer.ties import Ratio, contender, experiment, ratio
from predict.plan_search.search import Found, Ranked
from predict.plan_search.space.axes import Question
from predict.plan_search.survey import in_words
from predict.run.model_flops import tokens_per_step
from predict.step.prediction import Prediction

APART = "apart: the interval of its time overlaps the best one's by less than was asked for"


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
