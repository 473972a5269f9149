"""1F1B with twice as many forwards in the warm-up, so that transfers between stages are hidden."""

from __future__ import annotations

import numpy as np

from predict.schedules.building import one_chunk, schedule
from predict.schedules.engine.order import Rows, loop, rows
from predict.schedules.families.one_f_one_b import alternate


@schedule(
    "eager-1f1b",
    citation="Zhuang et al. 2022, On Optimizing the Communication of Model Parallelism, arXiv:2211.05322, section 4.2",
    splits_backward=False,
    supports=one_chunk,
    placement=loop,
)
def eager_1f1b(ranks: int, chunks: int, microbatches: int) -> list[Rows]:
    """The time of 1F1B where transfers are free; it hides longer ones, and holds up to 2p − 1 activations on rank 0."""
    every = np.arange(microbatches)
    forwards, backwards = rows("F", every), rows("BW", every)
    return [alternate(forwards, backwards, warm_up=2 * (ranks - 1 - rank)) for rank in range(ranks)]
