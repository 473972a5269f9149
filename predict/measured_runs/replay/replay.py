"""Replay: a traced step's own kernel times under another plan, by way of prices that the trace corrects.

Operators, messages and the host cost what the trace says of them (`predict.measured_runs.replay.pace`), and the
schedule is simulated anew. What the traced step takes beyond that (standing still, waiting at its end) is carried over:
to another run a half, since it is partly the run's.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from predict import estimate, load
from predict.config.document import Config
from predict.interval import Interval, independent_causes, width_of_step
from predict.ledger.compute import StepItem, step_items
from predict.measured_runs.explain.explanation import measured_calls
from predict.measured_runs.explain.measured import TracedStep, without_profiler
from predict.measured_runs.explain.messages import COMMUNICATION
from predict.measured_runs.explain.naming import direction
from predict.measured_runs.explain.predicted import ROUNDING, name_of, predicted_step
from predict.measured_runs.explain.read_traces import read_measured
from predict.measured_runs.explain.trace_matches_config import require_same_step
from predict.measured_runs.measured_step import logged_us
from predict.measured_runs.replay.pace import CARRIED, MODELLED, REPEATS, SHARED, TraceFactors, paces
from predict.prices.open import open_prices
from predict.prices.price_list import Priced, Prices
from predict.rank.blocks import Message
from predict.run.calibration_terms import NINETY
from predict.run.training_run import TrainingRun
from predict.step.breakdown import BUBBLE, CP, DP, EP, HOST, OVERHEAD, P2P, STRAGGLERS, TP
from predict.step.prediction import Prediction
from predict.step.priced_block import total_us
from regressors.bank.times import Source
from sampling.call import Call, Counted, Phase
from sampling.cells.data_parallel import GradientCell
from sampling.collectives.kinds import Collective, SendRecv
from sampling.errors import UserError

# Prices of a replay: operators at the paces of a trace, and layers as the sums of theirs with the host's time between them.


class ReplayedPrices:
    """The prices of `inner` with the factors of a trace.

    A layer is the sum of its operators, of the host's time around each, and of its messages. Where the trace does not
    show such layers (they are spread over ranks and those of the trace are not, or the other way round), a sampled
    whole takes at least what its sample says. What a question asks for multiplies the parts of that, however long the
    whole is.
    """

    def __init__(self, inner: Prices, factors: TraceFactors) -> None:
        self._inner = inner
        self.factors = factors
        self._unscaled = ReplayedPrices(inner, factors.unscaled) if factors != factors.unscaled else self
        self._known: dict[tuple[Call, Phase], float] = {}
        self.profile_error = inner.profile_error
        self.transfer_error = inner.transfer_error
        self.pace_spread = inner.pace_spread
        self.launch_floors = inner.launch_floors
        self.sampled_contention = inner.sampled_contention
        self.provenance: Mapping[str, Any] = inner.provenance

    def priced(self, counted: Iterable[Counted]) -> tuple[Priced, ...]:
        return tuple(
            self._at_pace(unit, of_messages=_heading_of_messages(one))
            for one in counted
            for unit in self._inner.priced([one])
        )

    def parts(self, counted: Counted) -> tuple[Priced, ...]:
        heading = _heading_of_messages(counted)
        hidden = self.factors.exposed_reduction if heading == DP else 1.0
        found = [self._at_pace(unit, of_messages=heading) for unit in self._inner.parts(counted)]
        return tuple(_times(unit, hidden) if isinstance(unit.call, Collective) else unit for unit in found)

    def glue_us(self, whole: Counted) -> float | None:
        return None if self.factors.wholes is None else self._inner.glue_us(whole)

    def learn(self, counted: Iterable[Counted]) -> None:
        self._inner.learn(counted)

    def _at_pace(self, unit: Priced, *, of_messages: str) -> Priced:
        time_us = unit.time.median_us
        if not time_us:
            return unit
        if isinstance(unit.call, Collective):
            factor, _ = self.factors.of_messages(of_messages)
        elif unit.call.HEADING == P2P:
            factor, _ = self.factors.of_messages(P2P)
        elif is_whole(unit):
            factor = self._whole_us(unit) / time_us
        else:
            factor, _ = self.factors.of(unit.call, direction(unit.phase))
            factor += self.factors.host_beside_us(unit.call) / time_us
        return _times(unit, factor, self._source(unit))

    def _source(self, unit: Priced) -> Source:
        """A trace measured what it sets the pace of; without one, a whole is as sure as the least sure of its parts."""
        if self.factors.seen:
            return "measured"
        parts = self._inner.parts(Counted(call=unit.call, phase=unit.phase)) if is_whole(unit) else ()
        summed = self.factors.wholes is None
        return "analytic" if summed and any(part.time.source == "analytic" for part in parts) else unit.time.source

    def _whole_us(self, unit: Priced) -> float:
        """Time of one run of a call that has parts."""
        key = unit.call, unit.phase
        if key not in self._known:
            before = self._unscaled.parts(Counted(call=unit.call, phase=unit.phase))
            scaled = self.parts(Counted(call=unit.call, phase=unit.phase))
            least_us = unit.time.median_us * self._share_of_whole(unit, before)
            beyond_us = max(0.0, least_us - total_us(before))
            self._known[key] = total_us(scaled) + beyond_us * self._scale_beyond(unit, before, scaled)
        return self._known[key]

    def _scale_beyond(self, unit: Priced, before: Sequence[Priced], scaled: Sequence[Priced]) -> float:
        """The factor asked for on what a sampled whole takes beyond its parts: the factor of the parts that the ledger books it under."""
        places = [place for place, part in enumerate(before) if self._takes_the_rest(unit, part, before)]
        before_us = total_us([before[place] for place in places])
        return total_us([scaled[place] for place in places]) / before_us if before_us else 1.0

    def _takes_the_rest(self, unit: Priced, part: Priced, parts: Sequence[Priced]) -> bool:
        """Whether the rest of a whole is the part's: a reduction's messages', else of a layer on one rank its guessed operators'."""
        is_message = isinstance(part.call, Collective)
        if isinstance(unit.call, GradientCell):
            return is_message
        return part.time.source == "analytic" and not _spread(parts)

    def _share_of_whole(self, unit: Priced, parts: Iterable[Priced]) -> float:
        """The factor on a sampled whole below which its parts may not add up; 0 where the trace shows all of such layers."""
        if self.factors.wholes is not None:
            return self.factors.wholes
        kind = DP if isinstance(unit.call, GradientCell) else TP if _spread(parts) else HOST
        return 1.0 if self.factors.seen and kind not in self.factors.complete else 0.0


def is_whole(unit: Priced) -> bool:
    """Whether a call is priced as the sum of others."""
    return not unit.call.HEADING and bool(unit.call.parts(unit.phase))


def _times(unit: Priced, factor: float, source: Source | None = None) -> Priced:
    time = Interval.of(unit.time).scaled(factor).in_place_of(unit.time)
    return replace(unit, time=replace(time, source=source) if source else time)


def _spread(parts: Iterable[Priced]) -> bool:
    """Whether a call's parts are spread over ranks, which exchange messages."""
    return any(isinstance(part.call, Collective) for part in parts)


def _heading_of_messages(one: Counted) -> str:
    """The ledger's heading of a call's collectives: by the group that runs them, or by the call that holds them."""
    if isinstance(one, Message):
        sends = P2P if isinstance(one.call, SendRecv) else DP
        return one.group if one.group in (TP, CP, EP) else sends
    return DP if isinstance(one.call, GradientCell) else one.call.HEADING or TP


# Terms of a replay: the ledger of the replayed step, each time by its origin, and the interval that the origins leave.

REST = "rest of the trace"
"""Heading of what the traced step takes beyond its calls and schedule: standing still, waiting at its end, and what no term explains."""
FOLLOWS = "follows"
"""Origin of waiting, which the schedule of all other times makes."""
OPERATORS = 0.08
"""Standard deviation in log time of modelled operators. Assumed: those of unseen shapes are 11 % off each, which partly averages out."""
HOSTS = 0.3
"""Standard deviation in log time of the host's time around operators of another run. Assumed."""
RESTS = 1 / NINETY
"""Standard deviation of the rest of the trace, as a share of what is carried over to another run, which may have none of it, or twice
as much."""
UNSEEN_MESSAGES = 0.5
"""Standard deviation in log time of messages that the trace does not show. Assumed: half to twice the time, at 90 %."""

TWO_RUNS = math.sqrt(2)
"""Standard deviation of the difference of two runs, over the standard deviation of one about the machine's mean pace."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayedTerm:
    """One heading of a replayed step: µs a step of the mean pipeline rank, by origin."""

    name: str
    by_origin_us: Mapping[str, float]

    @property
    def time_us(self) -> float:
        return sum(self.by_origin_us.values())


def terms_of(replayed: Prediction, carried_us: float) -> tuple[ReplayedTerm, ...]:
    """The terms of a step at replayed prices, which add up to it and what is carried over, the longest first."""
    assert isinstance(replayed.prices, ReplayedPrices)
    factors = replayed.prices.factors
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for each in step_items(replayed):
        for heading, origin, time_us in _origins(each, factors):
            found[heading][origin] += time_us
    found[REST][CARRIED] += carried_us
    for name in (STRAGGLERS, OVERHEAD):
        found[name][MODELLED] += replayed.breakdown_us.get(name, 0.0)
    waited_us = replayed.median_us + carried_us - sum(sum(each.values()) for each in found.values())
    found[BUBBLE if replayed.run.plan.pp > 1 else HOST][FOLLOWS] += waited_us
    least_us = ROUNDING * replayed.median_us
    terms = [
        ReplayedTerm(name=name, by_origin_us=kept)
        for name, by_origin in found.items()
        if (kept := {origin: time_us for origin, time_us in by_origin.items() if abs(time_us) > least_us})
    ]
    return tuple(sorted(terms, key=lambda each: -each.time_us))


def _origins(each: StepItem, factors: TraceFactors) -> Iterator[tuple[str, str, float]]:
    """(heading, origin, µs) of an item; the host's time is taken out of operators and of layers' messages."""
    item, heading = each.item, name_of(each)
    if item.call is None or item.phase is None:
        yield heading, MODELLED, each.time_us
    elif each.is_message:
        _, origin = factors.of_messages(heading)
        own_us = min(each.time_us, each.alone_us) if heading == TP else each.time_us
        yield heading, origin, own_us
        yield HOST, MODELLED, each.time_us - own_us
    else:
        # a split backward takes the weights' half out of the whole, as calls below 0
        host_us = math.copysign(
            min(abs(each.time_us), abs(each.calls) * factors.host_beside_us(item.call)), each.time_us
        )
        _, origin = factors.of(item.call, direction(item.phase))
        yield heading, origin, each.time_us - host_us
        yield HOST, CARRIED, host_us


def half_width(terms: Sequence[ReplayedTerm], *, same_run: bool, pace_doubt: float, spread: float) -> float:
    """Half-width in log time, at 90 %, of a replayed step: repeats, and beside them each kind of doubtful time, whose
    errors go together and move the step by that time's share of all but waiting. In the traced run what is carried over
    is as sure as a repeat. `pace_doubt` is the standard deviation in log time of the pace that all modelled operators
    share, `spread` the one of the traced run's steps about one another, by which a drifting machine moves the replayed run
    too."""
    spent = [(term.name, origin, time_us) for term in terms for origin, time_us in term.by_origin_us.items()]
    shifts_us: dict[str, float] = defaultdict(float)
    for name, origin, time_us in spent:
        for kind, doubt in _doubts(name, origin, same_run=same_run, pace_doubt=pace_doubt):
            shifts_us[kind] += doubt * abs(time_us)  # a rest below 0 is as doubtful as one above
    work_us = sum(time_us for _, origin, time_us in spent if origin != FOLLOWS)
    return NINETY * width_of_step(
        max(REPEATS, TWO_RUNS * spread), *(shift_us / work_us for shift_us in shifts_us.values())
    )


def _doubts(name: str, origin: str, *, same_run: bool, pace_doubt: float) -> Iterator[tuple[str, float]]:
    """(kind of error, standard deviation in log time) of a term's time of an origin, without repeats."""
    if origin == MODELLED and name in COMMUNICATION:
        yield "messages", UNSEEN_MESSAGES
    elif origin == MODELLED:
        yield "operators", OPERATORS
        yield "pace", pace_doubt
    elif origin == CARRIED and not same_run:
        yield ("rest", RESTS) if name == REST else ("host", HOSTS)


OTHERS_SHARE = 0.5
"""Share of what calls do not explain in the traced step that another run has too. Assumed: partly the machine's, partly the run's."""
FOLLOWING = "it follows from the plan, which --set changes"
MODELLED_HOST = (
    "the trace shows no time of the host around operators that this step has too, so that there is none to scale"
)
"""Reasons why a factor would move nothing."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A traced step, what the models alone predict for the step in question, and its replay."""

    traced: TracedStep
    traced_us: float
    """The traced step without its profiler, as `predict explain` has it."""
    modelled: Prediction
    replayed: Prediction
    """The step in question at the trace's prices, without `carried_us`."""
    same_run: bool
    """Whether the run in question is the traced one, but for the factors of the question; its replay is then the
    traced step by construction."""
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
        # the trace's pace shows what is shared of the error of a transfer
        transferred = (1 - SHARED) * self.modelled.prices.transfer_error / NINETY
        pace_doubt = independent_causes(self.replayed.prices.factors.pace_doubt, transferred)
        width = half_width(self.terms, same_run=self.same_run, pace_doubt=pace_doubt, spread=self.traced.spread)
        return Interval.from_log(self.median_us, width)

    def share(self, origin: str) -> float:
        """Share of the step whose time has an origin."""
        return sum(term.by_origin_us.get(origin, 0.0) for term in self.terms) / self.median_us


def what_if(
    config: Config,
    overrides: Sequence[str] = (),
    *,
    trace: Path | str,
    log: str | None = None,
    kernels: Mapping[str, float] | None = None,
    link_speed: float = 1.0,
    report: Callable[[str], None] = lambda line: None,
) -> Replay:
    """Replay the step of a config that a trace, or a folder of them, shows, as `overrides` change it. `kernels` are factors on times by
    heading; links are `link_speed` times as fast; `log` is the step without the profiler, as for `explain`.

    UserError for a heading or for messages that the step in question does not have, and for a trace of another run.
    """
    traced_run, other_run = load(config), load(config, overrides)
    measured = read_measured(Path(trace), traced_run)
    measured = replace(measured, logged_us=logged_us(log, traced_run, report))
    return replayed(traced_run, other_run, measured, kernels=kernels, link_speed=link_speed)


def replayed(
    traced_run: TrainingRun,
    other_run: TrainingRun,
    measured: TracedStep,
    *,
    kernels: Mapping[str, float] | None = None,
    link_speed: float = 1.0,
) -> Replay:
    """Replay the traced step of `traced_run` as `other_run`."""
    before = estimate(traced_run, require_fit=False)
    factors = fitted_factors(before, measured)
    modelled = estimate(other_run, require_fit=False)
    target_us = without_profiler(measured).step_us
    rest_us = target_us - _at(traced_run, factors).median_us
    scaled = replace(
        _for_other_layers(factors, traced_run, other_run, pace=target_us / before.median_us),
        scaled=dict(kernels or {}),
        links=1 / link_speed,
    )
    _require_headings(scaled, modelled)
    return Replay(
        traced=measured,
        traced_us=target_us,
        modelled=modelled,
        replayed=_at(other_run, scaled),
        same_run=_settings(other_run) == _settings(traced_run),
        rest_us=rest_us,
    )


def _settings(run: TrainingRun) -> tuple[object, ...]:
    """Settings by which a step is the same again."""
    return run.model, run.cluster, run.plan, run.batch, run.precision, run.execution, run.real


def _for_other_layers(factors: TraceFactors, traced: TrainingRun, other: TrainingRun, *, pace: float) -> TraceFactors:
    """The factors as far as they hold for the ranks and layers of the run in question."""
    alike = (traced.plan.tp > 1) == (other.plan.tp > 1) or not other.execution.whole_layers
    carried = factors if alike else factors.in_other_layers()
    return carried if other.cluster.threads == traced.cluster.threads else carried.on_other_threads(pace)


def _at(run: TrainingRun, factors: TraceFactors) -> Prediction:
    prices = ReplayedPrices(open_prices(run.cluster, run.execution), factors)
    return estimate(run, prices=prices, require_fit=False)


def _require_headings(factors: TraceFactors, modelled: Prediction) -> None:
    """UserError for a heading whose time no factor moves: one that follows from the plan, or that the step in question does not have;
    and for other links where nothing is sent."""
    unmoved = {BUBBLE: FOLLOWING, STRAGGLERS: FOLLOWING} | ({} if factors.host_us else {HOST: MODELLED_HOST})
    step = predicted_step(modelled)
    if factors.links != 1 and not any(step.messages_us.values()):
        raise UserError(
            f"--link-speed: {modelled.run.name} sends nothing between ranks, so that no link moves its step; omit it"
        )
    known = sorted({*step.headings, HOST} - unmoved.keys())
    faults = [
        f"{name}: {unmoved.get(name, 'not in the ledger of this step')}" for name in factors.scaled if name not in known
    ]
    if faults:
        raise UserError(f"--kernel: {'; '.join(faults)}; give one of {', '.join(known)}")


def fitted_factors(before: Prediction, measured: TracedStep) -> TraceFactors:
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
