"""Replay: a traced step's own kernel times under another plan, by way of prices that the trace corrects.

Operators, messages and the host cost what the trace says of them (`predict.explain.replay.pace`), and the schedule is simulated anew. What the
traced step takes beyond that (standing still, waiting at its end) is carried over: to another run a half, since it is partly the run's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from predict import estimate
from predict.explain.belonging import require_same_step
from predict.explain.ledger import measured_calls
from predict.explain.measured import MeasuredStep
from predict.explain.predicted import predicted_step
from predict.explain.replay.pace import SHARED, TraceFactors, paces
from predict.explain.replay.prices import ReplayedPrices
from predict.explain.replay.terms import ReplayedTerm, half_width, terms_of
from predict.explain.unprofiled import without_profiler
from predict.interval import Interval
from predict.prices.open import open_prices
from predict.run.calibration.priors import NINETY
from predict.run.training_run import TrainingRun
from predict.step.breakdown import BUBBLE, HOST, STRAGGLERS
from predict.step.prediction import Prediction
from sampling.errors import UserError

OTHERS_SHARE = 0.5
"""Share of what calls do not explain in the traced step that another run has too. Assumed: partly the machine's, partly the run's."""
FOLLOWING = "it follows from the plan, which --set changes"
MODELLED_HOST = (
    "the trace shows no time of the host beside operators that this step has too, so that there is none to scale"
)
"""Reasons why a factor would move nothing."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A question asked of a trace: the traced step, what the models alone say of the asked one, and the replay."""

    traced: MeasuredStep
    traced_us: float
    """The traced step without its profiler, as `predict explain` has it."""
    modelled: Prediction
    replayed: Prediction
    """The asked step at the trace's prices, without `carried_us`."""
    same_run: bool
    """Whether the asked run is the traced one, but for the factors of the question; its replay is then the traced step by construction."""
    rest_us: float
    """What the traced step takes beyond its calls and schedule; below 0 where it takes less."""

    @property
    def carried_us(self) -> float:
        """The part of the rest that is carried over."""
        return self.rest_us * (1.0 if self.same_run else OTHERS_SHARE)

    @property
    def median_us(self) -> float:
        return self.replayed.median_us + self.carried_us

    @cached_property
    def terms(self) -> tuple[ReplayedTerm, ...]:
        """The replayed ledger, which adds up to `median_us`, the longest first."""
        return terms_of(self.replayed, self.carried_us)

    @cached_property
    def step_time(self) -> Interval:
        """The replayed step with its 90 % interval: repeats, which differ at least as the traced run's own steps do, and what is modelled
        (by another device's rows, with the width of their transfer), carried over or assumed."""
        assert isinstance(self.replayed.prices, ReplayedPrices)
        transferred = (
            (1 - SHARED) * self.modelled.prices.transfer_error / NINETY
        )  # the trace's pace tells the shared part
        pace_doubt = math.hypot(self.replayed.prices.factors.pace_doubt, transferred)
        width = half_width(self.terms, same_run=self.same_run, pace_doubt=pace_doubt, spread=self.traced.spread)
        return Interval.from_log(self.median_us, width)

    def share(self, origin: str) -> float:
        """Share of the step whose time has an origin."""
        return sum(term.by_origin_us.get(origin, 0.0) for term in self.terms) / self.median_us


def what_if(
    traced_run: TrainingRun,
    asked_run: TrainingRun,
    measured: MeasuredStep,
    *,
    kernels: Mapping[str, float] | None = None,
    link_speed: float = 1.0,
) -> Replay:
    """Replay the traced step of `traced_run` as `asked_run`. `kernels` are factors on times by heading; links are `link_speed` times as fast.

    UserError for a heading or for messages that the asked step does not have, and for a trace of another run.
    """
    before = estimate(traced_run, require_fit=False)
    factors = fitted_factors(before, measured)
    modelled = estimate(asked_run, require_fit=False)
    target_us = without_profiler(measured).step_us
    rest_us = target_us - _at(traced_run, factors).median_us
    asked = replace(
        _for_other_layers(factors, traced_run, asked_run, pace=target_us / before.median_us),
        scaled=dict(kernels or {}),
        links=1 / link_speed,
    )
    _require_headings(asked, modelled)
    return Replay(
        traced=measured,
        traced_us=target_us,
        modelled=modelled,
        replayed=_at(asked_run, asked),
        same_run=_settings(asked_run) == _settings(traced_run),
        rest_us=rest_us,
    )


def _settings(run: TrainingRun) -> tuple[object, ...]:
    """Settings by which a step is the same again."""
    return run.model, run.cluster, run.plan, run.batch, run.precision, run.execution, run.real


def _for_other_layers(factors: TraceFactors, traced: TrainingRun, asked: TrainingRun, *, pace: float) -> TraceFactors:
    """The factors as far as they hold for the asked run's ranks and layers."""
    alike = (traced.plan.tp > 1) == (asked.plan.tp > 1) or not asked.execution.whole_layers
    carried = factors if alike else factors.in_other_layers()
    return carried if asked.cluster.threads == traced.cluster.threads else carried.on_other_threads(pace)


def _at(run: TrainingRun, factors: TraceFactors) -> Prediction:
    prices = ReplayedPrices(open_prices(run.cluster, run.execution), factors)
    return estimate(run, prices=prices, require_fit=False)


def _require_headings(asked: TraceFactors, modelled: Prediction) -> None:
    """UserError for a heading whose time no factor moves: one that follows from the plan, or that the asked step does not have; and for
    other links where nothing is sent."""
    unmoved = {BUBBLE: FOLLOWING, STRAGGLERS: FOLLOWING} | ({} if asked.host_us else {HOST: MODELLED_HOST})
    step = predicted_step(modelled)
    if asked.links != 1 and not any(step.messages_us.values()):
        raise UserError(
            f"--link-speed: {modelled.run.name} sends nothing between ranks, so that no link moves its step; omit it"
        )
    known = sorted({*step.headings, HOST} - unmoved.keys())
    faults = [
        f"{name}: {unmoved.get(name, 'not in the ledger of this step')}" for name in asked.scaled if name not in known
    ]
    if faults:
        raise UserError(f"--kernel: {'; '.join(faults)}; give one of {', '.join(known)}")


def fitted_factors(before: Prediction, measured: MeasuredStep) -> TraceFactors:
    """The factors by which the traced plan's own calls become those of the traced step."""
    run, ranks = before.run, measured.pipeline_ranks(before.run)
    predicted = predicted_step(before, ranks)
    require_same_step(
        run,
        predicted,
        calls=measured_calls(measured),
        headings=measured.headings,
        sent=measured.sent,
        splits=measured.splits(run),
        forwards_first=measured.forwards_first(run),
        logged_us=measured.logged_us,
    )
    alone = predicted_step(_at(run, TraceFactors()), ranks)
    return paces(alone, without_profiler(measured), sharded=run.plan.tp > 1)
