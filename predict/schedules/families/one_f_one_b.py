"""One forward, one backward: the flushed schedule of PipeDream, and Megatron-LM's form with several chunks per rank."""

import numpy as np

from predict.schedules.building import (
    chunk_turns,
    each_microbatch,
    each_round,
    one_chunk,
    round_size,
    schedule,
    whole_rounds,
)
from predict.schedules.engine.order import WHOLE_ROW, Rows, loop, rows


@schedule(
    "1f1b",
    citation="Narayanan et al. 2021, Memory-Efficient Pipeline-Parallel DNN Training (PipeDream-Flush), "
    "arXiv:2006.09503; Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU Clusters Using "
    "Megatron-LM, arXiv:2104.04473, figure 4 (top)",
    splits_backward=False,
    supports=one_chunk,
    placement=loop,
    period=each_microbatch,
)
def one_f_one_b(ranks: int, chunks: int, microbatches: int) -> list[Rows]:
    """Takes as long as AFAB where transfers are free, but rank r holds min(m, p − r) activations instead of m."""
    forwards, backwards = (rows(kind, np.arange(microbatches)) for kind in ("F", "BW"))
    return [alternate(forwards, backwards, warm_up=ranks - 1 - rank) for rank in range(ranks)]


@schedule(
    "interleaved-1f1b",
    citation="Narayanan et al. 2021, arXiv:2104.04473, section 2.2 and figure 4 (bottom); torch's "
    "ScheduleInterleaved1F1B where p does not divide m",
    splits_backward=False,
    supports=whole_rounds,
    placement=loop,
    period=each_round,
)
def interleaved_1f1b(ranks: int, chunks: int, microbatches: int) -> list[Rows]:
    """1F1B over v chunks, which take turns every g microbatches: the bubble of 1F1B divided by v.

    With equal stages and free transfers a step takes m(f + b + w) + (p − 1)(f + b + w)/v, of full-rank times. Rank r
    runs (v − 1)g + 2(p − 1 − r) forwards ahead, and holds one activation more.
    """
    size = round_size(ranks, microbatches)
    microbatch, chunk = chunk_turns(chunks, microbatches, size)
    forwards, backwards = rows("F", microbatch, chunk), rows("BW", microbatch, chunks - 1 - chunk)
    return [
        alternate(forwards, backwards, warm_up=(chunks - 1) * size + 2 * (ranks - 1 - rank)) for rank in range(ranks)
    ]


def alternate(forwards: Rows, backwards: Rows, *, warm_up: int) -> Rows:
    """Warm-up of `warm_up` forwards (or all), steady state of one forward and one backward in turn, cool-down of backwards."""
    total = len(forwards)
    ahead = min(warm_up, total)
    steady = total - ahead
    made = np.empty((2 * total, 4), np.int32)
    into, first, second = (actions.view(WHOLE_ROW) for actions in (made, forwards, backwards))
    # warm-up, steady forwards, steady backwards, cool-down
    into[:ahead] = first[:ahead]
    into[ahead : ahead + 2 * steady : 2] = first[ahead:]
    into[ahead + 1 : ahead + 2 * steady : 2] = second[:steady]
    into[ahead + 2 * steady :] = second[steady:]
    return made
