"""ZB-V as its authors' figure has it: two chunks per rank in a V, and no bubble where f = b = w."""

import numpy as np

from predict.schedules.building import each_microbatch, schedule, two_chunks
from predict.schedules.engine.order import MICROBATCH, Rows, interleave, rows, v_shape


@schedule(
    "zbv",
    citation="Qi et al. 2024, arXiv:2401.10241, section 6 and figure 7; torch's ScheduleZBVZeroBubble",
    splits_backward=True,
    supports=two_chunks,
    placement=v_shape,
    period=each_microbatch,
)
def zbv(ranks: int, chunks: int, microbatches: int) -> list[Rows]:
    """The activations of 1F1B, 2p half-ranks. In units where f = b = w of a chunk, a step of 2p − 1
    microbatches or more takes 3·2m + p − 1.

    It is laid out for at least 2p − 1 microbatches; of fewer, the others are left out.
    """
    laid_out = max(microbatches, 2 * ranks - 1)
    full = [_rank(ranks, rank, laid_out) for rank in range(ranks)]
    return [row[row[:, MICROBATCH] < microbatches] for row in full]


def _rank(ranks: int, rank: int, microbatches: int) -> Rows:
    """The actions of one rank. Chunk 0 is its stage on the way down the V, chunk 1 the one on the way up, where the loss is near
    and whose backwards come first."""
    every = np.arange(microbatches)
    f0, f1, b0, b1, w0, w1 = (rows(kind, every, chunk) for kind in ("F", "B", "W") for chunk in (0, 1))
    # ends of the parts, in microbatches
    first_f0, warm_f0 = 2 * (ranks - rank) - 1, 2 * ranks - 1 - rank
    warm_b1 = ranks - rank
    steady_b0 = microbatches - warm_f0
    full_b0 = microbatches - ranks
    full_b1 = full_b0 + warm_b1
    warm_up = (
        f0[:first_f0],
        interleave(f1[:rank], f0[first_f0:warm_f0]),
        interleave(f1[rank:ranks], b1[:warm_b1], w1[:warm_b1]),
    )
    steady = interleave(
        f0[warm_f0:],
        b0[:steady_b0],
        w0[:steady_b0],
        f1[ranks : ranks + steady_b0],
        b1[warm_b1 : warm_b1 + steady_b0],
        w1[warm_b1 : warm_b1 + steady_b0],
    )
    without_f0 = interleave(
        b0[steady_b0:full_b0],
        w0[steady_b0:full_b0],
        f1[ranks + steady_b0 :],
        b1[warm_b1 + steady_b0 : full_b1],
        w1[warm_b1 + steady_b0 : full_b1],
    )
    cool_down = (
        interleave(b0[full_b0 : full_b0 + rank], b1[full_b1:]),
        interleave(b0[full_b0 + rank :], w0[full_b0 : full_b0 + warm_b1]),
        w1[full_b1:],
        w0[full_b0 + warm_b1 :],
    )
    return np.concatenate([*warm_up, steady, without_f0, *cool_down])
