"""Ties: predictions that cannot be distinguished, by the interval of the ratio of what they are ranked by.

Two plans of one model on one cluster share most of what their intervals hold. One kind of call that is slower than predicted slows
both, each by its own share of the step, so that only the difference of the shares is left in the ratio; and of the composition
errors, whose terms add in quadrature, only those terms that the plans do not share. Each setting in which the plans differ adds
an error of its own (PLAN_SETTING), as much smaller as samples make the composition error. What remains adds in quadrature, with
the noise of repeated measurements.
"""

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from predict.interval import Interval, width_of_ratio, without_cause
from predict.plan_search.options import Objective
from predict.prices.published_constants import CONSTANTS
from predict.run.model_flops import tokens_per_step
from predict.run.training_run import TrainingRun
from predict.step.composition_error import published_spread
from predict.step.interval import CallKind, kind_shifts
from predict.step.prediction import Prediction
from sampling.number_text import whole_percent

REPEATS = 0.02
"""Half-width in log time by which two measurements of one run on the same nodes differ: 0.1 to 2 % in published repeats."""
DIVIDING = ("tp", "sp", "pp", "vpp", "cp", "cp_method", "ep", "etp", "zero", "shard", "recompute", "recompute_modules")
"""Settings of the plan that divide the work or repeat it; the schedule follows from vpp."""
MOST_OF_IT = 0.5
"""Share of a ratio's variance from which on one kind of call is what to time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio(Interval):
    """The figure that predictions are ranked by, of one over that of the best one, with its 90 % bounds; less is better."""

    widest: CallKind | None = None
    """The kind of call whose error moves the ratio most, if any does and it is known."""
    share: float = 0.0
    """The share of the ratio's variance that it makes."""

    @property
    def tied(self) -> bool:
        """Whether it may be the better one."""
        return self.low <= 1.0

    @property
    def overlap(self) -> float:
        """Share by which the intervals of the two overlap once their common errors are taken out: 1 where their medians are
        the same, 0 from where they only touch, which is where they are no longer tied."""
        if self.median <= 1.0:
            return 1.0
        width = self.half_width_log
        return max(0.0, 1 - math.log(self.median) / width) if width else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """A plan's figure, and its errors as shares of it."""

    value: float
    half_widths: Mapping[CallKind, float] = field(default_factory=dict)
    """Half-width of each kind of call, of an RL step of each side of it, signed: positive where a slower kind makes a slower step, as
    all but noise does."""
    composition_error: float = 0.0
    repeats: float = 0.0
    per_setting: float = 0.0
    """Error for each setting in which another plan differs."""
    settings: tuple[Any, ...] = ()
    """Those that divide the work or change how it runs; in the same order for all plans."""


def contender(prediction: Prediction, objective: Objective) -> Contender:
    """A prediction as a contender; one for memory has no errors of times."""
    value = value_of(prediction, objective)
    if not objective.timed:
        return Contender(value=value)
    shifts = kind_shifts(prediction.timeline.order, prediction.ranks)
    return Contender(
        value=value,
        half_widths={kind: (above - below) / 2 / prediction.median_us for kind, (below, above) in shifts.items()},
        composition_error=prediction.composition_error,
        repeats=REPEATS,
        per_setting=setting_error(prediction),
        settings=setting_values(prediction.run),
    )


def value_of(prediction: Prediction, objective: Objective) -> float:
    """The figure that a prediction is ranked by."""
    board_w = prediction.power.mean_w if prediction.power else 0.0
    return float(objective.value(prediction.run, us_per_token(prediction), prediction.memory.point_bytes, board_w))


def setting_error(prediction: Prediction) -> float:
    """The error of each setting in which another plan differs."""
    return CONSTANTS["PLAN_SETTING"].value * prediction.composition_error / published_spread(prediction.run)


def setting_values(run: TrainingRun) -> tuple[Any, ...]:
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
    found = Ratio.from_log(other.value / best.value, width)
    widest = max(left, key=lambda kind: abs(left[kind]), default=None)
    return replace(found, widest=widest, share=left[widest] ** 2 / width**2 if widest and width else 0.0)


def experiment(nearest: Ratio, place: int) -> str:
    """The experiment that would distinguish the best plan from a tied one, which is at `place` of the ranking."""
    if nearest.widest is None or nearest.share < MOST_OF_IT:
        return f"measure plans 1 and {place}, 20 steps each: their uncertainty is spread over many kinds of calls"
    name, phase = nearest.widest
    return (
        f"sample {name} ({phase}) in the shapes of plans 1 and {place}: its error makes {whole_percent(nearest.share)} of the uncertainty "
        "between them (`predict calls` lists the shapes)"
    )
