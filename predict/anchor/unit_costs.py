"""Prices of the units of a run (a layer of each kind, the embedding, the head) by phase, and their share of communication."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from predict.prices.price_list import Prices
from predict.rank.blocks import Block, single
from predict.rank.share import RankShare
from predict.run.training_run import TrainingRun
from predict.step.priced_block import BlockPrices, block_prices, total_us
from predict.workload.layer import LayerBlocks, embedding_blocks, head_blocks, layer_blocks
from predict.workload.whole_layers import EMBEDDING, HEAD, module_kind, whole_layer_calls
from sampling.call import Call, Counted, Phase
from sampling.collectives.kinds import Collective

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
    """The cost of a block and of the exposed part of the communication beside it."""
    (repeated,) = priced.bucket(single(block)).blocks
    exposed_us = sum(each.exposed_us for each in repeated.priced.overlapped)
    return Cost(
        total_us=repeated.priced.median_us, communication_us=exposed_us, kernels_us=total_us(repeated.priced.units)
    )


def call_cost(call: Call, phase: Phase, prices: Prices) -> Cost:
    """The cost of a whole call, some of whose parts may be collectives."""
    one = Counted(call=call, phase=phase)
    whole_us = total_us(prices.priced([one]))
    exchanged_us = total_us(part for part in prices.parts(one) if isinstance(part.call, Collective))
    return Cost(total_us=whole_us, communication_us=exchanged_us, kernels_us=whole_us - exchanged_us)
