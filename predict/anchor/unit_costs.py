"""What a phase of a unit (a layer of a kind, the embedding, the head) is priced at, and how much of that is communication."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from predict.model.layer_kinds import LayerKind
from predict.prices.price_list import PriceList
from predict.run.training_run import TrainingRun
from predict.step.priced_block import BlockPrices, total_us
from predict.workload.layers.embedding_and_head import embedding_blocks, head_blocks
from predict.workload.layers.layer import LayerBlocks, layer_blocks
from predict.workload.rank.blocks import Block, single
from predict.workload.rank.share import RankShare
from predict.workload.whole_layers import EMBEDDING, HEAD, module_kind, whole_layer_calls
from sampling.call import Call, Counted, Phase
from sampling.collectives.kinds import Collective

BLOCK_PHASES: tuple[Phase, ...] = ("forward", "backward", "backward_input", "backward_weight")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """µs of a phase; `communication_us` is what of `total_us` is spent on it, and `kernels_us` what its operators take
    where launching them costs nothing."""

    total_us: float = 0.0
    communication_us: float = 0.0
    kernels_us: float = 0.0

    @property
    def work_us(self) -> float:
        return self.total_us - self.communication_us

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            total_us=self.total_us + other.total_us,
            communication_us=self.communication_us + other.communication_us,
            kernels_us=self.kernels_us + other.kernels_us,
        )

    def __mul__(self, factor: float) -> Cost:
        return Cost(
            total_us=factor * self.total_us,
            communication_us=factor * self.communication_us,
            kernels_us=factor * self.kernels_us,
        )


Costs = dict[str, dict[Phase, Cost]]
"""By unit and phase."""


def unit_costs(run: TrainingRun, prices: PriceList) -> Costs:
    """Of every unit of a run that has a whole-layer module, in each phase of that module."""
    calls = whole_layer_calls(run)
    if run.execution.whole_layers:
        return {unit: {phase: call_cost(call, phase, prices) for phase in call.PHASES} for unit, call in calls.items()}
    again = dict(blocks_by_unit(_with_microbatches(run, 2)))
    alone = dict(blocks_by_unit(_with_microbatches(run, 1)))
    priced = BlockPrices(prices)
    costs: Costs = {}
    for unit in (unit for unit in calls if unit in alone):
        of_unit = {phase: block_cost(getattr(alone[unit], phase), priced) for phase in BLOCK_PHASES}
        # of two microbatches one adds to the gradients of the other, and a block tells their mean
        twice = block_cost(again[unit].backward, priced)
        of_unit["backward_accumulate"] = twice * 2 + of_unit["backward"] * -1
        costs[unit] = {phase: of_unit[phase] for phase in calls[unit].PHASES}
    return costs


def blocks_by_unit(run: TrainingRun) -> Iterator[tuple[str, LayerBlocks]]:
    """The blocks of a run of operators, with the unit that stands for them; a unit may come with several."""
    rank = RankShare(run=run)
    for kind in dict.fromkeys(run.model.kinds()):
        timed: LayerKind | None = module_kind(run.model, kind)
        if timed:
            yield timed.name, layer_blocks(rank, kind)
    yield EMBEDDING, embedding_blocks(rank)
    for shares in (True, False):
        yield HEAD, head_blocks(rank, shares_embedding=shares)


def block_cost(block: Block, priced: BlockPrices) -> Cost:
    """A block with its communication beside it, as far as that is exposed."""
    (repeated,) = priced.bucket(single(block)).blocks
    exposed_us = sum(each.exposed_us for each in repeated.priced.overlapped)
    return Cost(
        total_us=repeated.priced.median_us, communication_us=exposed_us, kernels_us=total_us(repeated.priced.units)
    )


def call_cost(call: Call, phase: Phase, prices: PriceList) -> Cost:
    """A call whose parts may be collectives."""
    one = Counted(call=call, phase=phase)
    whole_us = total_us(prices.priced([one]))
    exchanged_us = total_us(part for part in prices.parts(one) if isinstance(part.call, Collective))
    return Cost(total_us=whole_us, communication_us=exchanged_us, kernels_us=whole_us - exchanged_us)


def _with_microbatches(run: TrainingRun, microbatches: int) -> TrainingRun:
    sequences = microbatches * run.batch.micro * run.plan.dp
    return replace(run, batch=replace(run.batch, global_=sequences))
