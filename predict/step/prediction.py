"""Prediction: everything that is known of one training step once its calls are priced and its schedule is timed.

Pricing and timing a plan is cheap; the interval, the ledger and the memory are computed when they are first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from predict.interval import Interval
from predict.memory.advice import SmallestCluster, smallest_cluster
from predict.memory.estimate import MemoryEstimate, RankTimeline, memory_of, memory_timeline
from predict.prices.open import open_prices
from predict.prices.price_list import Prices
from predict.prices.sample_provenance import notes_on_better_rows, shipped_beside_own
from predict.run.calibration_terms import Posterior
from predict.run.model_flops import mfu, tokens_per_step
from predict.run.training_run import Replica, TrainingRun, one_replica
from predict.schedules.engine.order import Order
from predict.schedules.engine.timing import Timeline, simulate
from predict.step.breakdown import exposed_p2p_us, step_breakdown
from predict.step.composition_error import (
    calibrated_half_width,
    composition_error,
    elasticities,
    error_of_stated,
    error_terms,
    machine_error,
    pace_error,
    transfer_error,
    width_beyond_calls,
)
from predict.step.interval import CallKind, calls_half_width, kind_shifts, step_interval
from predict.step.power import BoardPower, board_power
from predict.step.priced_rank import (
    PricedRank,
    chunk_times,
    counted_blocks,
    price,
    step_time_us,
    stragglers_factor,
    with_windows,
)
from predict.workload.decompose import RankCalls, decompose
from regressors.bank.times import shares_of
from sampling.errors import UserError
from sampling.number_text import duration

if TYPE_CHECKING:
    from predict.reduced_benchmark.benchmark_file import Benchmark


ALL = 0.9995
"""Share from which on a source is written as 100 %."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageEstimate:
    """One pipeline rank: its layers, µs of one microbatch's forward and backward over all its chunks, of reducing gradients, and
    of the optimizer's step."""

    layers: int
    forward_us: float
    backward_us: float
    gradients_us: float
    step_us: float


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction:
    """One predicted step of `run`, whose schedule is a named one. Times are µs, sizes bytes.

    `median_us` is the step time; `step_time` adds its 90 % bounds. `calls`, `ranks` and `timeline` are what the path made of
    the run: the calls of every pipeline rank, those priced, and when each of the schedule's actions runs.
    """

    run: TrainingRun
    median_us: float
    calls: tuple[RankCalls, ...]
    ranks: tuple[PricedRank, ...]
    timeline: Timeline
    prices: Prices
    unrestored_prices: Prices
    """The prices before the benchmark's times replaced some; without a benchmark, `prices`."""
    benchmark: Benchmark | None
    """The times of whole layers that the step was restored from."""

    def __repr__(self) -> str:
        """One line: a run holds every key of its model, which would bury the answer."""
        return f"<Prediction {self.run.name}: {duration(self.median_us)} per step, .step_time, .memory, .breakdown_us, .sources>"

    @cached_property
    def step_time(self) -> Interval:
        """The step time with its 90 % interval, as much narrower as the measured runs of a calibration make it."""
        return self._uncalibrated.narrowed(self.share_left)

    @cached_property
    def _uncalibrated(self) -> Interval:
        return self._interval(self.composition_error)

    def _interval(self, composition_error: float) -> Interval:
        return step_interval(self.median_us, self.timeline.order, self.ranks, composition_error)

    @cached_property
    def share_left(self) -> float:
        """Share of the interval's width that a calibration leaves, above 1 where its runs scatter more than expected; 1 without one, and
        in addition to a benchmark's own times."""
        if self.run.calibration is None or self.benchmark is not None:
            return 1.0
        by = elasticities(self.run, self._step_us)
        known = calibrated_half_width(self.own_half_width, self.run.calibration, by)
        return min(self.run.calibration.scatter, known / self._uncalibrated.half_width_log)

    @property
    def own_half_width(self) -> float:
        """Half-width in log time of the interval that no calibration has narrowed, without what all runs of the machine share."""
        if not (self.prices.transfer_error or machine_error(self.run)):
            return self._uncalibrated.half_width_log
        own = composition_error(self.run, self.prices.profile_error, self.sources, of_machine=False)
        return self._interval(own).half_width_log

    def _step_us(self, run: TrainingRun) -> float:
        """The step of a run that differs in times alone, in this prediction's order."""
        ranks = price(run, decompose(run), open_prices(run.cluster, run.execution))
        order = self.timeline.order
        timeline = simulate(order, chunk_times(ranks, order.placement))
        return whole_step_us(run, with_windows(ranks, timeline), timeline)

    @property
    def composition_error(self) -> float:
        """Half-width in log time that no single call's interval covers."""
        return width_beyond_calls(self.run, self.prices, self.sources)

    @cached_property
    def calls_half_width(self) -> float:
        """Half-width in log time at 90 % that the bounds of the calls alone leave the step."""
        return calls_half_width(self.median_us, self.timeline.order, self.ranks)

    @cached_property
    def unknowns(self) -> Mapping[str, float]:
        """The causes of the interval's width, widest first: half-widths in log time at 90 %, which add in quadrature."""
        terms = error_terms(self.run, self.prices.profile_error, self.sources)
        terms["times of single calls"] = self.calls_half_width
        if of_another_cpu := transfer_error(self.prices, self.sources):
            terms["rows of another CPU"] = of_another_cpu
        if of_stated := error_of_stated(self.run, self.sources):
            terms["stated peaks and links of this CPU"] = of_stated
        if of_pace := pace_error(self.prices, self.sources):
            terms["the machine's pace over time"] = of_pace
        terms = {name: width * self.share_left for name, width in terms.items()}
        return dict(sorted(terms.items(), key=lambda term: -term[1]))

    @cached_property
    def kind_shifts_us(self) -> Mapping[CallKind, tuple[float, float]]:
        """Kind of call → the changes of the step time at its lower and at its upper bound."""
        return kind_shifts(self.timeline.order, self.ranks)

    @property
    def tokens_per_second(self) -> float:
        return tokens_per_step(self.run) / self.median_us * 1e6

    @property
    def tokens_per_second_per_gpu(self) -> float:
        return self.tokens_per_second / self.run.cluster.world_size

    @property
    def mfu(self) -> float:
        return mfu(self.run, self.median_us)

    @property
    def bubble_fraction(self) -> float:
        return self.timeline.bubble_fraction

    @cached_property
    def breakdown_us(self) -> dict[str, float]:
        """The ledger: µs by heading, averaged over the pipeline ranks; adds up to `median_us`."""
        return step_breakdown(self.run, self.calls, self.prices, self.timeline.order, self.ranks, self.median_us)

    @cached_property
    def exposed_p2p_us(self) -> float:
        """Time that sends between pipeline ranks add to the step."""
        return exposed_p2p_us(self.timeline.order, self.ranks)

    @cached_property
    def sources(self) -> dict[str, float]:
        """Shares of the step's work that were measured, extrapolated, transferred or analytic; they add up to 1."""
        return step_sources(self.ranks, self.timeline.order)

    @cached_property
    def power(self) -> BoardPower | None:
        """The mean power of a board over the step; None where the hardware file states none."""
        return board_power(self.run.cluster.gpu, self.ranks, self.timeline.order, self.median_us)

    @property
    def is_analytic(self) -> bool:
        """Whether no sample says anything of this step."""
        return self.sources["analytic"] > ALL

    @cached_property
    def stages(self) -> tuple[StageEstimate, ...]:
        """One estimate per pipeline rank."""
        return tuple(
            StageEstimate(
                layers=of_rank.layers,
                forward_us=rank.forward_us,
                backward_us=sum(chunk.backward.median_us for chunk in rank.chunks),
                gradients_us=rank.exposed_us,
                step_us=rank.optimizer.median_us,
            )
            for rank, of_rank in zip(self.ranks, self.calls, strict=True)
        )

    @cached_property
    def memory(self) -> MemoryEstimate:
        """The memory of each pipeline rank, by this step's own timeline, and whether it fits."""
        return memory_of(self.run, self.timeline)

    @cached_property
    def memory_timeline(self) -> tuple[RankTimeline, ...]:
        """The memory of each pipeline rank from action to action."""
        return memory_timeline(self.run, self.timeline, self.median_us)

    @property
    def feasible(self) -> bool:
        """Whether the expected peak of memory fits the device."""
        return self.memory.feasible

    @property
    def one_replica(self) -> Replica:
        """The GPUs of one replica, whether or not they fit in memory."""
        return one_replica(self.run)

    @cached_property
    def smallest_cluster(self) -> SmallestCluster | None:
        """The fewest GPUs and nodes on which the plan fits; None where no number of nodes makes it fit."""
        return smallest_cluster(self.memory)

    @cached_property
    def provenance(self) -> Mapping[str, Any]:
        """The samples, the hardware file, the benchmark and the calibration that the prices come from, and which other rows would
        serve better."""
        return {**provenance_of(self.run, self.prices), "better_rows": self._notes_on_better_rows()}

    def _notes_on_better_rows(self) -> list[str]:
        """The note that the shipped rows measure more of this step than this machine's own, which are of the same CPU."""
        shipped = None if self.benchmark else shipped_beside_own(self.run.cluster)
        if shipped is None:
            return []
        run = replace(self.run, cluster=shipped)
        ranks = with_windows(price(run, self.calls, open_prices(shipped, run.execution)), self.timeline)
        by_shipped = step_sources(ranks, self.timeline.order)
        return notes_on_better_rows(self.sources["measured"], by_shipped["measured"])


def provenance_of(run: TrainingRun, prices: Prices) -> Mapping[str, Any]:
    """The samples, hardware file, benchmark and calibration that the times of a run rest on."""
    return {
        **prices.provenance,
        "notes": [*run.notes, *prices.provenance.get("notes", [])],
        "calibration": run.calibration and asdict(run.calibration.terms),
        "calibrated_on": run.calibration and rests_on(run.calibration),
    }


def rests_on(posterior: Posterior) -> dict[str, Any]:
    """The runs, the day and the error of a calibration, and the standard deviation of each term's logarithm."""
    return {
        "runs": [each.run for each in posterior.runs],
        "date": posterior.date,
        "left_out_percent": posterior.left_out_percent,
        "widths_log": dict(posterior.widths),
    }


def _require_rows_as_calibrated(run: TrainingRun, prices: Prices) -> None:
    """UserError where a calibration was fitted to times without rows of the CPU itself, and the step's are from such rows, or the other way
    round."""
    if run.calibration is not None and bool(run.calibration.transfer_error) != bool(prices.transfer_error):
        own = "rows of this CPU"
        then, now = f"no {own}", own
        if prices.transfer_error:
            then, now = own, "stated peaks" if prices.provenance["samples"] is None else "rows of another CPU"
        raise UserError(
            f"calibration: of {run.name}: the times that it was fitted to rest on {then}, and the step's on {now}; calibrate anew"
        )


def whole_step_us(run: TrainingRun, ranks: tuple[PricedRank, ...], timeline: Timeline) -> float:
    """The slowest rank's pipeline, gradients and optimizer, waiting for stragglers, and the overhead of a step, in µs; `ranks` have
    the timeline's windows."""
    return step_time_us(timeline, ranks) * stragglers_factor(run) + run.execution.beside_work_us


def compose(
    run: TrainingRun,
    calls: tuple[RankCalls, ...],
    ranks: tuple[PricedRank, ...],
    timeline: Timeline,
    prices: Prices,
    *,
    unrestored_prices: Prices,
    benchmark: Benchmark | None,
) -> Prediction:
    """The step: the slowest rank's pipeline, gradients and optimizer, waiting for stragglers, and the overhead of a step."""
    _require_rows_as_calibrated(run, prices)
    ranks = with_windows(ranks, timeline)
    return Prediction(
        run=run,
        calls=calls,
        ranks=ranks,
        timeline=timeline,
        prices=prices,
        unrestored_prices=unrestored_prices,
        benchmark=benchmark,
        median_us=whole_step_us(run, ranks, timeline),
    )


def step_sources(ranks: tuple[PricedRank, ...], order: Order) -> dict[str, float]:
    """Shares by source, which add up to 1; communication that overlaps with compute counts by its exposed time."""
    by_source = {"measured": 0.0, "extrapolated": 0.0, "transferred": 0.0, "analytic": 0.0}
    for priced, count in counted_blocks(ranks, order):
        for source, time_us in priced.by_source_us.items():
            by_source[source] += count * time_us
    return shares_of({name: max(0.0, time_us) for name, time_us in by_source.items()})
