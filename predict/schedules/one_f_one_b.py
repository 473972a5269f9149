"""One forward, one backward: the flushed schedule of PipeDream that Megatron-LM made the default."""

from __future__ import annotations

from predict.schedules.order import Action, loop
from predict.schedules.registry import one_chunk, schedule


@schedule(
    "1f1b",
    citation="Narayanan et al. 2021, Memory-Efficient Pipeline-Parallel DNN Training (PipeDream-Flush), "
    "arXiv:2006.09503; Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU Clusters Using "
    "Megatron-LM, arXiv:2104.04473, figure 4 (top)",
    splits_backward=False,
    supports_recompute=True,
    supports=one_chunk,
    placement=loop,
)
def one_f_one_b(ranks: int, chunks: int, microbatches: int) -> list[list[Action]]:
    """As quick as AFAB where transfers are free, while rank r holds min(m, p − r) activations in place of m."""
    forwards = [Action("F", microbatch, 0) for microbatch in range(microbatches)]
    backwards = [Action("BW", microbatch, 0) for microbatch in range(microbatches)]
    return [_rank(forwards, backwards, warm_up=min(ranks - 1 - rank, microbatches)) for rank in range(ranks)]


def _rank(forwards: list[Action], backwards: list[Action], *, warm_up: int) -> list[Action]:
    steady = len(forwards) - warm_up
    pairs = zip(forwards[warm_up:], backwards[:steady], strict=True)
    return [*forwards[:warm_up], *(action for pair in pairs for action in pair), *backwards[steady:]]
