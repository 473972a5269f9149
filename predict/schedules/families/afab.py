"""All forwards, then all backwards: the pipeline of GPipe, and its form with several chunks per rank."""

import numpy as np

from predict.schedules.building import any_counts, one_chunk, schedule
from predict.schedules.engine.order import Rows, loop, rows


@schedule(
    "afab",
    citation="Huang et al. 2019, GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism, "
    "arXiv:1811.06965",
    splits_backward=False,
    supports=one_chunk,
    placement=loop,
    forwards_first=True,
)
def afab(ranks: int, chunks: int, microbatches: int) -> list[Rows]:
    """The same on every rank; backwards in the order of the forwards, as torch's ScheduleGPipe runs them.

    With equal stages and free transfers a step takes (m + p − 1)(f + b + w), and every rank holds m activations.
    """
    every = np.arange(microbatches)
    return [np.concatenate([rows("F", every), rows("BW", every)])] * ranks


@schedule(
    "looped-bfs",
    citation="Lamy-Poirier 2023, Breadth-First Pipeline Parallelism, arXiv:2211.05953, section 4.1; torch's "
    "ScheduleLoopedBFS",
    splits_backward=False,
    supports=any_counts,
    placement=loop,
    forwards_first=True,
)
def looped_bfs(ranks: int, chunks: int, microbatches: int) -> list[Rows]:
    """All forwards chunk after chunk; then the backwards, chunks and microbatches in reverse. Every rank holds m·v."""
    forwards = rows("F", np.tile(np.arange(microbatches), chunks), np.repeat(np.arange(chunks), microbatches))
    backwards = rows(
        "BW", np.tile(np.arange(microbatches)[::-1], chunks), np.repeat(np.arange(chunks)[::-1], microbatches)
    )
    return [np.concatenate([forwards, backwards])] * ranks
