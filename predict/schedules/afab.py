"""All forwards, then all backwards: the pipeline of GPipe."""

from __future__ import annotations

from predict.schedules.order import Action, loop
from predict.schedules.registry import one_chunk, schedule


@schedule(
    "afab",
    citation="Huang et al. 2019, GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism, "
    "arXiv:1811.06965",
    splits_backward=False,
    supports_recompute=True,
    supports=one_chunk,
    placement=loop,
)
def afab(ranks: int, chunks: int, microbatches: int) -> list[list[Action]]:
    """The same on every rank; backwards in the order of the forwards, as torch's ScheduleGPipe runs them.

    With equal stages and free transfers a step takes (m + p − 1)(f + b + w), and every rank holds m activations.
    """
    forwards = [Action("F", microbatch, 0) for microbatch in range(microbatches)]
    backwards = [Action("BW", microbatch, 0) for microbatch in range(microbatches)]
    return [forwards + backwards] * ranks
