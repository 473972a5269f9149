"""A run's step, restored from a benchmark of its whole layers under a reduced plan.

A phase of a unit takes its measured time, less the communication of the reduced plan. This work is scaled by the ratio of
the work as priced for the two plans (a rank's share of tensors, experts and sequence; repetition). The communication of the
run's own plan is added again, as far as its overlap leaves it exposed. Sends, replicas and the optimizer are priced as
without a benchmark.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from predict.interval import Interval, sum_of_calls
from predict.prices.cost_model import CallPhase
from predict.prices.price_list import Priced, Prices
from predict.prices.sample_provenance import is_another_cpu, notes_on_benchmark
from predict.rank.blocks import Block, OverlappedCommunication, Repeated, single
from predict.rank.share import RankShare
from predict.reduced_benchmark.benchmark_file import Benchmark, as_json
from predict.run.training_run import TrainingRun
from predict.step.priced_block import BlockPrices, block_prices, total_us
from predict.workload.chunks import ChunkCalls
from predict.workload.decompose import RankCalls
from predict.workload.layer import LayerBlocks, embedding_blocks, head_blocks, layer_blocks
from predict.workload.whole_layers import EMBEDDING, HEAD, module_kind, whole_layer_calls
from regressors.bank.times import Times
from sampling.arithmetic.operator import add_terms, scale_terms
from sampling.call import Call, Counted, Phase
from sampling.collectives.kinds import Collective
from sampling.errors import SamplesError
from sampling.hardware.cluster import Cluster
from sampling.number_text import plain

# A price list in which some calls have times restored from a benchmark of whole layers.


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoredWork(Call):
    """The calls of a block, timed as one; `unit` (a kind of layer, embedding or head) is the module that stands for it."""

    NAME: ClassVar[str] = "restored"
    PHASES: ClassVar[tuple[Phase, ...]] = ("forward", "backward", "backward_input", "backward_weight")

    unit: str
    calls: tuple[Counted, ...]

    def parts(self, phase: Phase) -> Sequence[Counted]:
        return self.calls

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return add_terms(*(scale_terms(each.call.terms(each.phase, cluster), each.count) for each in self.calls))

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return self.terms(phase, cluster)


class RestoredPrices:
    """The prices of `inner`, except for the calls in `restored`, which come from the `benchmark` described. `notes` say what the
    benchmark's device has to do with the run's; with `elsewhere` it is another one, and nothing counts as measured."""

    def __init__(
        self,
        inner: Prices,
        restored: Mapping[CallPhase, Times],
        benchmark: Mapping[str, Any],
        *,
        notes: Sequence[str] = (),
        elsewhere: bool = False,
    ) -> None:
        self._inner = inner
        self._restored = restored
        self._elsewhere = elsewhere
        self.profile_error = inner.profile_error
        self.transfer_error = inner.transfer_error
        self.pace_spread = inner.pace_spread
        self.launch_floors = inner.launch_floors
        self.sampled_contention = inner.sampled_contention
        all_notes = [*inner.provenance.get("notes", ()), *notes]
        self.provenance: Mapping[str, Any] = {**inner.provenance, "notes": all_notes, "benchmark": benchmark}

    def glue_us(self, whole: Counted) -> None:
        """Nothing: whole layers were timed, with the time between their parts."""

    def priced(self, counted: Iterable[Counted]) -> tuple[Priced, ...]:
        wanted = list(counted)
        self.learn(wanted)
        return tuple(unit for one in wanted for unit in self._one(one))

    def _one(self, one: Counted) -> tuple[Priced, ...]:
        time = self._restored.get((one.call, one.phase))
        if time is None:
            return self._inner.priced([one])
        if self._elsewhere:
            time = replace(time, source="transferred")
        return (Priced(call=one.call, phase=one.phase, count=one.count, time=time),)

    def parts(self, counted: Counted) -> tuple[Priced, ...]:
        return self._inner.parts(counted)

    def learn(self, counted: Iterable[Counted]) -> None:
        self._inner.learn(one for one in counted if (one.call, one.phase) not in self._restored)


# Prices of the units of a run (a layer of each kind, the embedding, the head) by phase, and their share of communication.

BLOCK_PHASES: tuple[Phase, ...] = ("forward", "backward", "backward_input", "backward_weight")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """µs of a phase. `communication_us` is its exposed communication; `kernels_us` the time of its operators if launching
    them cost nothing."""

    total_us: float = 0.0
    communication_us: float = 0.0
    kernels_us: float = 0.0

    @property
    def work_us(self) -> float:
        return self.total_us - self.communication_us


Costs = dict[str, dict[Phase, Cost]]
"""Costs by unit and phase."""


def unit_costs(run: TrainingRun, prices: Prices) -> Costs:
    """Costs of each unit that has a whole-layer module, by phase."""
    calls = whole_layer_calls(run)
    if run.execution.whole_layers:
        return {unit: {phase: call_cost(call, phase, prices) for phase in call.PHASES} for unit, call in calls.items()}
    priced = block_prices(run, prices)
    blocks = dict(blocks_by_unit(run))
    return {
        unit: {phase: block_cost(getattr(blocks[unit], phase), priced) for phase in BLOCK_PHASES}
        for unit in calls
        if unit in blocks
    }


def blocks_by_unit(run: TrainingRun) -> Iterator[tuple[str, LayerBlocks]]:
    """The blocks of a run of operators, with the unit that stands for them; a unit may come with several."""
    rank = RankShare(run=run)
    for kind in dict.fromkeys(run.model.kinds()):
        if timed := module_kind(run.model, kind):
            yield timed.name, layer_blocks(rank, kind)
    yield EMBEDDING, embedding_blocks(rank)
    for shares in (True, False):
        yield HEAD, head_blocks(rank, shares_embedding=shares)


def block_cost(block: Block, priced: BlockPrices) -> Cost:
    """The cost of a block and of the exposed part of its communication."""
    (repeated,) = priced.bucket(single(block)).blocks
    exposed_us = sum(each.exposed_us for each in repeated.priced.overlapped)
    return Cost(
        total_us=repeated.priced.median_us, communication_us=exposed_us, kernels_us=total_us(repeated.priced.units)
    )


def call_cost(call: Call, phase: Phase, prices: Prices) -> Cost:
    """The cost of a whole call; some of its parts may be collectives."""
    one = Counted(call=call, phase=phase)
    whole_us = total_us(prices.priced([one]))
    exchanged_us = total_us(part for part in prices.parts(one) if isinstance(part.call, Collective))
    return Cost(total_us=whole_us, communication_us=exchanged_us, kernels_us=whole_us - exchanged_us)


SAME = 1e-9
"""Relative difference of equal work that is due to rounding."""
Signature = tuple[Any, ...]
"""The content of a block: blocks themselves compare by identity."""


def restored(
    run: TrainingRun, calls: tuple[RankCalls, ...], benchmark: Benchmark, prices: Prices
) -> tuple[tuple[RankCalls, ...], Prices]:
    """The run's calls and prices, with its layers, embedding and head as timed by the benchmark.

    Raises SamplesError for times that leave no work besides communication.
    """
    restoration = Restoration(run, benchmark, prices)
    return restoration.adjust(calls), restoration.prices


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """The ratio of measured over priced work of a phase of a unit, and the priced kernels (µs) of the measured work."""

    ratio: Interval
    kernels_us: float

    def times(self, work_us: float) -> Times:
        """The restored time of kernels that are priced at `work_us`.

        Where the reduced plan changed the work, the bounds also contain the measurement plus the difference as priced: the two
        ways differ by as much as the prices miss the measurement.
        """
        added_us = self.ratio.median * self.kernels_us + work_us - self.kernels_us
        unchanged = math.isclose(work_us, self.kernels_us, rel_tol=SAME)
        scaled = self.ratio.scaled(work_us)
        return Times(
            median_us=scaled.median,
            low_us=max(0.0, min(scaled.low, added_us)),
            high_us=max(scaled.high, added_us),
            source="measured" if unchanged else "extrapolated",
        )


class Restoration:
    """The prices that a benchmark gives to one run, and the run's blocks as calls that have such a price."""

    def __init__(self, run: TrainingRun, benchmark: Benchmark, prices: Prices) -> None:
        self._benchmark = benchmark
        self._inner = prices
        self._costs = unit_costs(benchmark.reduced_run(run), prices)
        self._restored: dict[CallPhase, Times] = {}
        self._blocks: dict[tuple[int, Phase], Block] = {}
        self._unit_of: dict[tuple[Signature, Phase], tuple[str, Phase]] = {}
        if run.execution.whole_layers:
            self._restored.update(self._whole_calls(run))
        else:
            self._unit_of.update(_signatures(run))
        timed_on = benchmark.timed_on
        self.prices: Prices = RestoredPrices(
            prices,
            self._restored,
            _described(benchmark),
            notes=notes_on_benchmark(run.cluster, timed_on, prices.provenance["samples"]),
            elsewhere=is_another_cpu(run.cluster, timed_on),
        )

    def adjust(self, calls: tuple[RankCalls, ...]) -> tuple[RankCalls, ...]:
        """The calls of a run of operators, those of each restored block as one; a run of whole layers is unchanged."""
        if not self._unit_of:
            return calls
        return tuple(rank._replace(chunks=tuple(self._chunk(chunk) for chunk in rank.chunks)) for rank in calls)

    def _chunk(self, chunk: ChunkCalls) -> ChunkCalls:
        restored: dict[str, Any] = {
            phase: tuple(replace(each, block=self._block(each, phase)) for each in getattr(chunk, phase))
            for phase in BLOCK_PHASES
        }
        return replace(chunk, **restored)

    def _block(self, repeated: Repeated, phase: Phase) -> Block:
        block = repeated.block
        if (id(block), phase) not in self._blocks:
            self._blocks[id(block), phase] = self._restore(block, phase)
        return self._blocks[id(block), phase]

    def _restore(self, block: Block, phase: Phase) -> Block:
        unit, unit_phase = self._unit_of.get((_signature(block), phase), ("", phase))
        work_us = total_us(self._inner.priced(block.calls))
        if unit not in self._benchmark.times_us or work_us <= 0:
            return block
        whole = RestoredWork(unit=unit, calls=block.calls)
        self._restored[whole, unit_phase] = self._scale(unit, self._timed(unit, unit_phase)).times(work_us)
        return replace(
            block,
            calls=(Counted(call=whole, phase=unit_phase),),
            overlapped=tuple(self._hidden_by(each, whole, unit_phase, work_us) for each in block.overlapped),
        )

    def _hidden_by(
        self, overlapped: OverlappedCommunication, whole: RestoredWork, phase: Phase, work_us: float
    ) -> OverlappedCommunication:
        """The communication with the work that hides it scaled as the block that this work is a share of."""
        if not overlapped.work:
            return overlapped
        share = total_us(self._inner.priced(overlapped.work)) / work_us
        return replace(overlapped, work=(Counted(call=whole, phase=phase, count=share),))

    def _whole_calls(self, run: TrainingRun) -> Iterator[tuple[CallPhase, Times]]:
        for unit, call in whole_layer_calls(run).items():
            for phase in self._benchmark.times_us.get(unit, {}):
                if phase in call.PHASES:
                    yield (call, phase), self._whole_call(unit, call, phase)

    def _whole_call(self, unit: str, call: Call, phase: Phase) -> Times:
        cost = call_cost(call, phase, self._inner)
        work = self._scale(unit, phase).times(cost.work_us)
        return sum_of_calls([Interval.of(work), Interval.exactly(cost.communication_us)]).in_place_of(work)

    def _timed(self, unit: str, phase: Phase) -> Phase:
        """The phase whose time stands for a phase of a block: itself, or the whole backward where a half was not timed.

        It is never `backward_accumulate`: the sum of gradients over microbatches is a block of its own.
        """
        return phase if phase in self._benchmark.times_us[unit] else "backward"

    def _scale(self, unit: str, phase: Phase) -> Scale:
        timed, cost = self._benchmark.times_us[unit][phase], self._costs[unit][phase]
        work_us = timed.median - cost.communication_us
        if work_us <= 0 or cost.work_us <= 0:
            raise SamplesError(
                f"benchmark: times_us.{unit}.{phase}: {plain(timed.median)} µs were measured, but this cluster's prices put "
                f"{plain(cost.communication_us)} µs of communication into it, and {plain(cost.work_us)} µs of work; benchmark with "
                "--gpus 1, or mend the links in cluster"
            )
        return Scale(
            ratio=Interval(
                median=work_us, low=max(0.0, timed.low - cost.communication_us), high=timed.high - cost.communication_us
            ).ratio_to(cost.work_us),
            kernels_us=cost.kernels_us,
        )


def _described(benchmark: Benchmark) -> dict[str, Any]:
    """The benchmark as a prediction's provenance shows it."""
    content = as_json(benchmark)
    return {key: content[key] for key in ("run", "reduced_plan", "device", "world_size", "provenance")}


def _signature(part: Block | OverlappedCommunication) -> Signature:
    values = [getattr(part, each.name) for each in fields(part)]
    return tuple(
        tuple(map(_signature, value))
        if value and isinstance(value, tuple) and isinstance(value[0], OverlappedCommunication)
        else value
        for value in values
    )


def _signatures(run: TrainingRun) -> Iterator[tuple[tuple[Signature, Phase], tuple[str, Phase]]]:
    """The unit of each block of the run and the phase of the unit that it repeats, by the block and its phase in the run."""
    for unit, blocks in blocks_by_unit(run):
        for phase in BLOCK_PHASES:
            yield (_signature(getattr(blocks, phase)), phase), (unit, phase)
        yield (_signature(blocks.again), "backward"), (unit, "forward")
