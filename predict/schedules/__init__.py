"""Pipeline schedules by name, and the exact time of a step of them.

Importing this package loads no schedule and no numeric library; the first call does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def names() -> list[str]:
    """The names of all schedules."""
    from predict.schedules import registry

    return registry.names()


def makespan(
    name: str,
    *,
    ranks: int,
    chunks: int,
    microbatches: int,
    forward: ArrayLike,
    backward_input: ArrayLike,
    backward_weight: ArrayLike,
    p2p: ArrayLike = 0.0,
    memory_limit: int | None = None,
) -> float:
    """Time from the start of a step to the end of its last action, in the unit of the times given.

    Times are those of `ChunkTimes`, of one chunk. `memory_limit`, in chunk activations that a rank holds until their W (BW)
    is done, is for the schedules that are solved under one. Raises ConfigError for an unknown name, counts that the
    schedule cannot run or times of another shape, InfeasibleError where the limit cannot be kept.
    """
    from predict.schedules import registry
    from predict.schedules.engine.costs import ChunkTimes
    from predict.schedules.engine.timing import makespan as makespan_of

    times = ChunkTimes(forward=forward, backward_input=backward_input, backward_weight=backward_weight, p2p=p2p)
    order = registry.order(
        name, ranks=ranks, chunks=chunks, microbatches=microbatches, times=times, memory_limit=memory_limit
    )
    return makespan_of(order, times)
