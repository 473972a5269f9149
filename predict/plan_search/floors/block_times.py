"""Times of a model's blocks (a layer of each kind, embedding, head) on one rank, for many plans at once.

They are the blocks of the estimate itself, priced by the same prices. Plans that differ in how the layers lie on the pipeline
share them, so that they are a few thousand where plans are a million.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predict.model.spec import LayerKind
from predict.plan_search.space.distinct import Indices, distinct
from predict.plan_search.space.legal import Space
from predict.prices.open import open_prices
from predict.rank.blocks import Repeated
from predict.run.training_run import TrainingRun
from predict.step.priced_block import BlockPrices, block_prices
from predict.workload.alike_runs import block_cache
from predict.workload.layer import LayerBlocks
from regressors.features.arrays import Floats

PHASES = ("forward", "backward", "backward_input", "backward_weight", "again", "accumulation")
FORWARD, BACKWARD, INPUT, WEIGHT, AGAIN, ACCUMULATION = range(len(PHASES))
ON_A_RANK = ("plan.tp", "plan.sp", "plan.cp", "plan.cp_method", "plan.ep", "plan.etp", "batch.micro", "batch.seq_len")
"""Keys that decide the blocks, beside all of execution."""
SHARDED = ("plan.zero", "plan.shard", "plan.dp")
"""Keys that decide them where gradients or weights are sharded."""
FEWEST_SHARDED = 2


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockTimes:
    """µs by distinct set of blocks, block and phase, shape (sets, kinds + 2, phases): last the embedding and the head.

    The accumulation is that of one microbatch that adds to the gradients of others.
    """

    times: Floats
    of_row: Indices
    """The set that each plan has."""


def sets_of_blocks(space: Space) -> tuple[Indices, Indices]:
    """A plan for each distinct set of blocks, and the set that each plan has."""
    count = len(space.rows)
    execution = [axis.path for axis in space.question.axes if axis.section == "execution"]
    recompute = space.column("plan.recompute")
    selective = (recompute == "selective").astype(np.int64)
    in_blocks = selective + 2 * (recompute == "ops")  # whole layers are repeated by a block of their own
    sharded = (space.column("plan.zero") >= FEWEST_SHARDED).astype(np.int64)
    columns = [in_blocks, sharded, *space.indices((*ON_A_RANK, *execution))]
    columns += [column * selective for column in space.indices(("plan.recompute_modules",))]
    columns += [column * sharded for column in space.indices(SHARDED)]
    # the last of each: pipelines are joined first, and the deepest one has the most microbatches
    last, inverse = distinct([column[::-1] for column in columns], count)
    return count - 1 - last, inverse[::-1]


def block_times(runs: Sequence[TrainingRun], kinds: Sequence[LayerKind], *, halves: bool) -> Floats:
    """The times of each run's blocks, shape (runs, kinds + 2, phases); without `halves`, 0 for those of the backward."""
    phases = [phase for phase in PHASES if halves or PHASES.index(phase) not in (INPUT, WEIGHT)]
    return np.array([_times(run, kinds, phases) for run in runs]).reshape(len(runs), len(kinds) + 2, len(PHASES))


def _times(run: TrainingRun, kinds: Sequence[LayerKind], phases: Sequence[str]) -> Floats:
    prices = block_prices(run, open_prices(run.cluster, run.execution))
    cache = block_cache(run)
    ends = (cache.embedding(), cache.head(shares_embedding=run.model.tied))
    of_blocks = [_of_block(blocks, prices, phases) for blocks in (*(cache.layer(kind) for kind in kinds), *ends)]
    times = np.array(of_blocks)
    times[:, ACCUMULATION] *= _added_to(run)
    return times


def _of_block(blocks: LayerBlocks, prices: BlockPrices, phases: Sequence[str]) -> list[float]:
    """The block's time in each of PHASES; 0 in those that are not among `phases`."""
    found: dict[str, float] = dict.fromkeys(PHASES, 0.0)
    for phase in phases:
        if phase == "again" and _runs_as_forward(blocks):
            found[phase] = found["forward"]
        else:
            found[phase] = prices.bucket((Repeated(block=getattr(blocks, phase), count=1.0),)).median_us
    return list(found.values())


def _runs_as_forward(blocks: LayerBlocks) -> bool:
    """Whether the repeated forward does all that the forward does, as it does unless the forward gathers weights."""
    again, forward = blocks.again, blocks.forward
    return again.calls is forward.calls and again.overlapped == forward.overlapped


def _added_to(run: TrainingRun) -> float:
    """Accumulations of a microbatch that adds, over the mean of all microbatches; 0 where first copies are among them, whose
    number does not grow with the microbatches."""
    execution, microbatches = run.execution, run.microbatches
    if microbatches == 1 or not (execution.fuse_gradients or run.plan.zero or run.plan.dp > 1):
        return 0.0
    return microbatches / (microbatches - 1)
