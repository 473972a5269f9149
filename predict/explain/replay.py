"""Replay: a traced step's own kernel times under another plan, by way of prices that the trace corrects.

Calls cost what the trace says of them (`predict.explain.pace`); what the traced step takes beyond that is shared by all work, by another
plan's in part. The schedule is simulated anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from predict import estimate
from predict.explain.belonging import require_same_step
from predict.explain.ledger import measured_calls
from predict.explain.measured import MeasuredStep
from predict.explain.pace import REPLAYED, TraceFactors, paces
from predict.explain.predicted import predicted_step
from predict.prices.open import open_prices
from predict.prices.price_list import Priced, Prices
from predict.run.training_run import TrainingRun
from predict.step.itemised.breakdown import BUBBLE, DP, STRAGGLERS
from predict.step.itemised.items import HOST, Item, items_of_call
from predict.step.prediction import Prediction
from predict.workload.chunks import ChunkCalls
from sampling.call import Call, Counted, Phase
from sampling.cells.gradient_cell import GradientCell
from sampling.collectives.kinds import Collective
from sampling.errors import UserError

ROUNDS = 3
"""Times that the common factor is fitted anew, since the schedule answers it by less than its whole."""
OWN_SHARE = 0.5
"""Share of the common factor's logarithm that another plan does not share: what calls do not explain is partly the plan's own, as in a
calibration. Assumed."""


class ReplayedPrices:
    """The prices of `inner`, each corrected by the factors of a trace."""

    def __init__(self, inner: Prices, factors: TraceFactors) -> None:
        self._inner = inner
        self._factors = factors
        self._known: dict[tuple[Call, Phase], tuple[float, float]] = {}
        self.profile_error = inner.profile_error
        self.transfer_error = inner.transfer_error
        self.launch_floors = inner.launch_floors
        self.sampled_contention = inner.sampled_contention
        self.provenance: Mapping[str, Any] = inner.provenance

    def priced(self, counted: Iterable[Counted]) -> tuple[Priced, ...]:
        return tuple(self._scaled(unit) for unit in self._inner.priced(counted))

    def parts(self, counted: Counted) -> tuple[Priced, ...]:
        return tuple(self._scaled(unit) for unit in self._inner.parts(counted))

    def glue_us(self, whole: Counted) -> float | None:
        glue_us = self._inner.glue_us(whole)
        return None if glue_us is None else glue_us * self._factors.of(Item(heading=HOST, time_us=glue_us))[0]

    def learn(self, counted: Iterable[Counted]) -> None:
        self._inner.learn(counted)

    def replayed_share(self, counted: Iterable[Counted]) -> float:
        """Share of the time of some calls that the trace itself shows."""
        whole_us = seen_us = 0.0
        for unit in self._inner.priced(counted):
            factor, share = self._factor(unit.call, unit.phase)
            whole_us += unit.total_us * factor
            seen_us += unit.total_us * factor * share
        return seen_us / whole_us if whole_us else 0.0

    def _scaled(self, unit: Priced) -> Priced:
        factor, _ = self._factor(unit.call, unit.phase)
        time = unit.time
        return replace(
            unit,
            time=replace(
                time, median_us=time.median_us * factor, low_us=time.low_us * factor, high_us=time.high_us * factor
            ),
        )

    def _factor(self, call: Call, phase: Phase) -> tuple[float, float]:
        """The factor of a call, a cell's as the mean of its parts' by their times; and the share of it that is replayed."""
        if (call, phase) not in self._known:
            items = items_of_call(Counted(call=call, phase=phase), self._inner)
            whole_us = seen_us = before_us = 0.0
            for item in items:
                factor, share = self._factor_of_item(item, call)
                before_us += item.time_us
                whole_us += item.time_us * factor
                seen_us += item.time_us * factor * share
            self._known[call, phase] = (
                (whole_us / before_us, seen_us / whole_us) if before_us and whole_us else (1.0, 0.0)
            )
        return self._known[call, phase]

    def _factor_of_item(self, item: Item, cell: Call) -> tuple[float, float]:
        """The factor of an item of a cell, which may be a cell too, and the share of it that is replayed."""
        if item.call is not None and item.phase is not None and item.call != cell and item.call.parts(item.phase):
            return self._factor(item.call, item.phase)
        if isinstance(cell, GradientCell) and isinstance(item.call, Collective):
            factor, tag = self._factors.of(replace(item, heading=DP))
        else:
            factor, tag = self._factors.of(item, of_whole=item.call != cell)
        return factor, float(tag == REPLAYED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """A question asked of a trace: the traced step, what the models alone say of the asked one, and the replay."""

    traced: MeasuredStep
    traced_us: float
    """The traced step; without the profiler's cost where the trace says it."""
    modelled: Prediction
    replayed: Prediction
    replayed_share: float
    """Share of the work's time that is of calls which the trace shows."""


def what_if(
    traced_run: TrainingRun,
    asked_run: TrainingRun,
    measured: MeasuredStep,
    *,
    kernels: Mapping[str, float] | None = None,
    link_speed: float = 1.0,
) -> Replay:
    """Replay the traced step of `traced_run` as `asked_run`. `kernels` are factors on times by heading; links are `link_speed` times as fast.

    UserError for a heading that the asked step does not have, and for a trace of another run.
    """
    before = estimate(traced_run, require_fit=False)
    factors = fitted_factors(before, measured)
    modelled = estimate(asked_run, require_fit=False)
    _require_headings(kernels or {}, modelled)
    kept = 1.0 if asked_run.plan == traced_run.plan else 1 - OWN_SHARE
    carried = replace(factors, common=factors.common**kept)
    if asked_run.cluster.threads != traced_run.cluster.threads:
        carried = TraceFactors(calls={}, headings={}, others=1.0)  # a rank of other threads is another device
    asked = replace(carried, scaled=dict(kernels or {}), links=1 / link_speed)
    prices = ReplayedPrices(open_prices(asked_run.cluster, asked_run.execution), asked)
    replayed = estimate(asked_run, prices=prices, require_fit=False)
    work = [one for rank in replayed.calls for chunk in rank.chunks for one in _calls_of(chunk)]
    return Replay(
        traced=measured,
        traced_us=measured.untraced_us or measured.step_us,
        modelled=modelled,
        replayed=replayed,
        replayed_share=prices.replayed_share(work),
    )


def _calls_of(chunk: ChunkCalls) -> Iterator[Counted]:
    """The calls of a chunk's forward and backward, by their number in all its blocks."""
    for repeated in (*chunk.forward, *chunk.backward):
        for one in repeated.block.calls:
            yield replace(one, count=one.count * repeated.count)


def _require_headings(kernels: Mapping[str, float], modelled: Prediction) -> None:
    known = sorted(set(predicted_step(modelled).headings) - {BUBBLE, STRAGGLERS})
    if following := [name for name in kernels if name in (BUBBLE, STRAGGLERS)]:
        raise UserError(
            f"--kernel: {', '.join(following)}: it follows from the plan, which --set changes; one of {', '.join(known)}"
        )
    unknown = [name for name in kernels if name not in known]
    if unknown:
        raise UserError(f"--kernel: {', '.join(unknown)}: not in the ledger of this step; one of {', '.join(known)}")


def fitted_factors(before: Prediction, measured: MeasuredStep) -> TraceFactors:
    """The factors with which the traced plan's own prediction becomes the traced step."""
    predicted = predicted_step(before, measured.pipeline_ranks(before.run))
    require_same_step(before.run, predicted, measured_calls(measured), measured.step_us, measured.logged_us)
    factors = paces(predicted, measured)
    run, target_us = before.run, measured.untraced_us or measured.step_us
    prices = open_prices(run.cluster, run.execution)
    for _ in range(ROUNDS):
        again = estimate(run, prices=ReplayedPrices(prices, factors), require_fit=False)
        factors = replace(factors, common=factors.common * target_us / again.median_us)
    return factors
