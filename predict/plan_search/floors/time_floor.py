"""Floor of the step time: no plan's estimate lies below it.

A rank works through all its actions one after the other; the first cannot start before a microbatch has passed the stages
before it, and after the last the gradient still passes them back:

    step ≥ max over ranks of (forward of the stages before + work of the rank + backward of the stages before) · stragglers + overhead

With even stages and free transfers this is 1F1B's own time, interleaved or not. Transfers, the order of the schedule, and the
end of the step (gradients, optimizer) come on top. Where the backward is split, its last part may be the weights', so that what
follows it is left out.
"""

from __future__ import annotations

import numpy as np

from predict.plan_search.floors.block_times import ACCUMULATION, AGAIN, BACKWARD, FORWARD, INPUT, WEIGHT, BlockTimes
from predict.plan_search.floors.structures import Structure, structures
from predict.plan_search.space.distinct import Indices
from predict.plan_search.space.legal import Space
from predict.step.stragglers import waiting_factor
from regressors.features.arrays import Floats

ROUNDING = 1e-9
"""Share by which sums in another order may differ."""


def time_floors(space: Space, blocks: BlockTimes) -> Floats:
    """µs of the step that each legal plan needs at least."""
    floors = np.zeros(len(space.rows))
    microbatches = microbatches_of(space)
    for structure, rows in structures(space):
        floors[rows] = _floor(structure, blocks.times[blocks.of_row[rows]], microbatches[rows])
    waiting = space.column("execution.waiting_time") * space.column("execution.stragglers")
    factors = waiting_factor(waiting, space.question.base.cluster.world_size)
    whole: Floats = (floors * factors + space.column("execution.step_overhead_us")) * (1 - ROUNDING)
    return whole


def microbatches_of(space: Space) -> Indices:
    sequences = space.column("batch.global") // (space.column("batch.micro") * space.column("plan.dp"))
    return np.asarray(sequences, dtype=np.int64)


def _floor(structure: Structure, times: Floats, microbatches: Indices) -> Floats:
    """The pipeline's time by set of blocks, from their times (sets, units, phases)."""
    forward, again = times[..., FORWARD], times[..., AGAIN]
    added = times[..., ACCUMULATION] * ((microbatches - 1) / microbatches)[:, None]
    if structure.splits_backward:
        # such a schedule may run some backwards whole
        least = np.minimum(times[..., BACKWARD], times[..., INPUT] + times[..., WEIGHT])
        backward, follows = least + added, np.zeros_like(forward)
    else:
        backward = follows = times[..., BACKWARD] + added
    repeats = 0.0 if structure.splits_backward else 1.0
    work = (forward + backward) @ structure.units.sum(axis=1).T
    work += repeats * again @ structure.repeated.sum(axis=1).T
    outside = (forward + follows) @ np.moveaxis(structure.before, 1, 2)
    outside += repeats * again @ np.moveaxis(structure.repeated_before, 1, 2)
    share = microbatches / structure.copies
    pipeline: Floats = (work * share[:, None] + outside.min(axis=0)).max(axis=1)
    return pipeline
