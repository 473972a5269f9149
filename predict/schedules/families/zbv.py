"""ZB-V as its authors' figure has it: two chunks per rank in a V, and no bubble where f = b = w."""

from __future__ import annotations

import numpy as np

from predict.schedules.building.schedule import schedule, two_chunks
from predict.schedules.engine.order import MICROBATCH, Rows, interleave, rows, v_shape


@schedule(
    "zbv",
    citation="Qi et al. 2024, arXiv:2401.10241, section 6 and figure 7; torch's ScheduleZBVZeroBubble",
    splits_backward=True,
    supports=two_chunks,
    placement=v_shape,
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
    every = np.arange(microbatches)
    f0, f1, b0, b1, w0, w1 = (rows(kind, every, chunk) for kind in ("F", "B", "W") for chunk in (0, 1))
    first, second = 2 * (ranks - rank) - 1, 2 * ranks - 1 - rank
    done1 = ranks - rank  # backwards of chunk 1 before the steady rounds
    rounds = microbatches - ranks
    with_forward = microbatches - second
    last0, last1 = rounds, rounds + done1  # backwards done when the steady rounds end
    return np.concatenate(
        [
            f0[:first],
            interleave(f1[:rank], f0[first:second]),
            interleave(f1[rank:ranks], b1[:done1], w1[:done1]),
            interleave(
                f0[second:],
                b0[:with_forward],
                w0[:with_forward],
                f1[ranks : ranks + with_forward],
                b1[done1 : done1 + with_forward],
                w1[done1 : done1 + with_forward],
            ),
            interleave(
                b0[with_forward:rounds],
                w0[with_forward:rounds],
                f1[ranks + with_forward :],
                b1[done1 + with_forward : last1],
                w1[done1 + with_forward : last1],
            ),
            interleave(b0[last0 : last0 + rank], b1[last1:]),
            interleave(b0[last0 + rank :], w0[last0 : last0 + done1]),
            w1[last1:],
            w0[last0 + done1 :],
        ]
    )
