"""A benchmark of whole layers under a reduced plan, restored to the plan of a run.

A phase of a layer takes what was measured, less the communication that the reduced plan had; that work is scaled as the
work of the two plans is priced (a rank's share of tensors, experts and sequence; repetition), and the communication of
the run's own plan stands beside it again, as far as its overlap leaves it exposed. Sends, replicas and the optimizer are
priced as without a benchmark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from predict.anchor.benchmark_file import Benchmark, Timed
from predict.anchor.restored_prices import RestoredPrices, RestoredWork
from predict.anchor.unit_costs import BLOCK_PHASES, Cost, blocks_by_unit, call_cost, unit_costs
from predict.prices.cost_model import Asked
from predict.prices.price_list import PriceList
from predict.run.training_run import TrainingRun
from predict.step.priced_block import total_us
from predict.workload.chunks import ChunkCalls
from predict.workload.decompose import RankCalls
from predict.workload.rank.blocks import Block, Blocks, OverlappedCommunication, Repeated
from predict.workload.whole_layers import whole_layer_calls
from regressors.bank.times import Times
from sampling.call import Call, Counted, Phase
from sampling.errors import SamplesError

SAME = 1e-9
"""Share by which works that are priced alike may differ from rounding."""
Weighted = tuple[tuple[Phase, float], ...]
"""Phases of a benchmark, and how often each runs in a phase of a run."""


def restored(
    run: TrainingRun, calls: tuple[RankCalls, ...], benchmark: Benchmark, prices: PriceList
) -> tuple[tuple[RankCalls, ...], PriceList]:
    """The run's calls and prices with its layers, embedding and head timed by the benchmark.

    SamplesError for times that leave nothing to work with.
    """
    restoration = Restoration(run, benchmark, prices)
    return restoration.adjust(calls), restoration.prices


def _told(benchmark: Benchmark) -> dict[str, Any]:
    content = benchmark.to_json()
    return {key: content[key] for key in ("run", "reduced_plan", "device", "world_size", "provenance")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Factors of measured over priced work in a phase of a unit, and the kernels (µs as priced) that it was measured on."""

    median: float
    low: float
    high: float
    kernels_us: float

    def times(self, work_us: float) -> Times:
        """Of kernels that are priced at `work_us`.

        Where reduction changed the work, the bounds also hold what adding the difference, as priced, to the measurement
        would give: the two ways differ by as much as the prices miss the measurement.
        """
        added_us = self.median * self.kernels_us + work_us - self.kernels_us
        unchanged = math.isclose(work_us, self.kernels_us, rel_tol=SAME)
        return Times(
            median_us=self.median * work_us,
            low_us=max(0.0, min(self.low * work_us, added_us)),
            high_us=max(self.high * work_us, added_us),
            source="measured" if unchanged else "extrapolated",
        )


class Restoration:
    """What a benchmark says of one run: its prices, and the blocks whose calls have such a price."""

    def __init__(self, run: TrainingRun, benchmark: Benchmark, prices: PriceList) -> None:
        self._benchmark = benchmark
        self._inner = prices
        self._microbatches = run.microbatches
        self._costs = unit_costs(benchmark.reduced_run(run), prices)
        self._restored: dict[Asked, Times] = {}
        self._blocks: dict[tuple[int, Phase], Block] = {}
        self._unit_of: dict[tuple[Signature, Phase], tuple[str, Phase]] = {}
        if run.execution.whole_layers:
            self._restored.update(self._whole_calls(run))
        else:
            self._unit_of.update(_signatures(run))
        self.prices: PriceList = RestoredPrices(prices, self._restored, _told(benchmark))

    def adjust(self, calls: tuple[RankCalls, ...]) -> tuple[RankCalls, ...]:
        """The calls of a run of operators, those of each restored block as one; a run of whole layers has them already."""
        if not self._unit_of:
            return calls
        return tuple(replace(rank, chunks=tuple(self._chunk(chunk) for chunk in rank.chunks)) for rank in calls)

    def _chunk(self, chunk: ChunkCalls) -> ChunkCalls:
        return replace(
            chunk,
            forward=self._in_phase(chunk.forward, "forward"),
            backward=self._in_phase(chunk.backward, "backward"),
            backward_input=self._in_phase(chunk.backward_input, "backward_input"),
            backward_weight=self._in_phase(chunk.backward_weight, "backward_weight"),
        )

    def _in_phase(self, blocks: Blocks, phase: Phase) -> Blocks:
        return tuple(replace(repeated, block=self._block(repeated, phase)) for repeated in blocks)

    def _block(self, repeated: Repeated, phase: Phase) -> Block:
        block = repeated.block
        if (id(block), phase) not in self._blocks:
            self._blocks[id(block), phase] = self._restore(block, phase)
        return self._blocks[id(block), phase]

    def _restore(self, block: Block, phase: Phase) -> Block:
        unit, own = self._unit_of.get((_signature(block), phase), ("", phase))
        work_us = total_us(self._inner.priced(block.calls))
        if unit not in self._benchmark.times or work_us <= 0:
            return block
        whole = RestoredWork(unit=unit, calls=block.calls)
        time = self._scale(unit, self._weighted(unit, own)).times(work_us)
        self._restored[whole, own] = time
        return replace(
            block,
            calls=(Counted(call=whole, phase=own),),
            overlapped=tuple(self._hidden_by(each, whole, own, work_us) for each in block.overlapped),
        )

    def _hidden_by(
        self, overlapped: OverlappedCommunication, whole: RestoredWork, phase: Phase, work_us: float
    ) -> OverlappedCommunication:
        """What hides communication takes as much longer, or shorter, as the block that it is a share of."""
        if not overlapped.work:
            return overlapped
        share = total_us(self._inner.priced(overlapped.work)) / work_us
        return replace(overlapped, work=(Counted(call=whole, phase=phase, count=share),))

    def _whole_calls(self, run: TrainingRun) -> Iterator[tuple[Asked, Times]]:
        for unit, call in whole_layer_calls(run).items():
            for phase in self._benchmark.times.get(unit, {}):
                if phase in call.PHASES:
                    yield (call, phase), self._whole_call(unit, call, phase)

    def _whole_call(self, unit: str, call: Call, phase: Phase) -> Times:
        cost = call_cost(call, phase, self._inner)
        work = self._scale(unit, ((phase, 1.0),)).times(cost.work_us)
        return replace(
            work,
            median_us=work.median_us + cost.communication_us,
            low_us=work.low_us + cost.communication_us,
            high_us=work.high_us + cost.communication_us,
        )

    def _weighted(self, unit: str, phase: Phase) -> Weighted:
        """A backward of operators is the mean over microbatches; its halves, where none were timed, are as the whole."""
        timed = self._benchmark.times[unit]
        if phase != "backward" and phase in timed:
            return ((phase, 1.0),)
        later = (self._microbatches - 1) / self._microbatches
        if not later or "backward_accumulate" not in timed:
            return (("backward", 1.0),)
        return ("backward", 1.0 - later), ("backward_accumulate", later)

    def _scale(self, unit: str, phases: Weighted) -> Scale:
        timed = [(self._benchmark.times[unit][phase], weight) for phase, weight in phases]
        cost = sum((self._costs[unit][phase] * weight for phase, weight in phases), Cost())
        median_us, low_us, high_us = (_mean(timed, name) - cost.communication_us for name in QUANTITIES)
        if median_us <= 0 or cost.work_us <= 0:
            raise SamplesError(
                f"benchmark: times_us.{unit}.{phases[0][0]}: {_mean(timed, 'median_us'):.4g} µs were measured, but this cluster's prices "
                f"put {cost.communication_us:.4g} µs of communication into it, and {cost.work_us:.4g} µs of work; benchmark "
                "with --gpus 1, or mend the links in cluster"
            )
        factors = (time_us / cost.work_us for time_us in (median_us, max(0.0, low_us), high_us))
        return Scale(**dict(zip(("median", "low", "high"), factors, strict=True)), kernels_us=cost.kernels_us)


QUANTITIES = ("median_us", "low_us", "high_us")
Signature = tuple[Any, ...]
"""What a block is made of, by value: blocks themselves are told apart by identity."""


def _mean(timed: list[tuple[Timed, float]], name: str) -> float:
    return sum(float(getattr(each, name)) * weight for each, weight in timed)


def _signature(part: Block | OverlappedCommunication) -> Signature:
    values = [getattr(part, each.name) for each in fields(part)]
    return tuple(
        tuple(map(_signature, value))
        if value and isinstance(value, tuple) and isinstance(value[0], OverlappedCommunication)
        else value
        for value in values
    )


def _signatures(run: TrainingRun) -> Iterator[tuple[tuple[Signature, Phase], tuple[str, Phase]]]:
    """By a block of the run and the phase that it is found in, its unit and the phase that it repeats."""
    for unit, blocks in blocks_by_unit(run):
        for phase in BLOCK_PHASES:
            yield (_signature(getattr(blocks, phase)), phase), (unit, phase)
        yield (_signature(blocks.again), "backward"), (unit, "forward")
