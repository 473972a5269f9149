"""Handcrafted zero-bubble schedules: the backward split into B and W, with W where the rank would wait."""

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
from predict.schedules.engine.order import ActionKind, Rows, loop, merge, rows

BACKWARD: tuple[ActionKind, ActionKind] = ("B", "W")
ZERO_BUBBLE = "Qi et al. 2024, Zero Bubble Pipeline Parallelism, arXiv:2401.10241"


@schedule(
    "zb-h1",
    citation=f"{ZERO_BUBBLE}, section 2.1",
    splits_backward=True,
    supports=one_chunk,
    placement=loop,
    period=each_microbatch,
)
def zb_h1(ranks: int, chunks: int, microbatches: int) -> list[Rows]:
    """The memory of 1F1B on rank 0, p activations, on all ranks; a third of its bubble where f = b = w.

    With equal stages and free transfers a step takes m(f + b + w) + (p − 1)·max(f + b − w, f).
    """
    return [_handcrafted(ranks, rank, microbatches, ahead=1) for rank in range(ranks)]


@schedule(
    "zb-h2",
    citation=f"{ZERO_BUBBLE}, section 2.2",
    splits_backward=True,
    supports=one_chunk,
    placement=loop,
    period=each_microbatch,
)
def zb_h2(ranks: int, chunks: int, microbatches: int) -> list[Rows]:
    """2p − 1 activations on all ranks; no bubble inside a rank's span where f = b = w.

    With equal stages and free transfers a step takes m(f + b + w) + (p − 1)·max(f, f + b − 2w).
    """
    return [_handcrafted(ranks, rank, microbatches, ahead=2) for rank in range(ranks)]


@schedule(
    "interleaved-zb",
    citation="torch's ScheduleInterleavedZeroBubble, after ZB1P of arXiv:2401.10241",
    splits_backward=True,
    supports=whole_rounds,
    placement=loop,
    period=each_round,
)
def interleaved_zb(ranks: int, chunks: int, microbatches: int) -> list[Rows]:
    """Interleaved 1F1B with half as many forwards ahead and W running r backwards late: p·v activations on all ranks.

    With equal stages and free transfers a step takes m(f + b + w) + (p − 1)·max(f, f + b − w)/v, of full-rank times.
    """
    size = round_size(ranks, microbatches)
    microbatch, chunk = chunk_turns(chunks, microbatches, size)
    forwards = rows("F", microbatch, chunk)
    backwards, weights = (rows(kind, microbatch, chunks - 1 - chunk) for kind in BACKWARD)
    return [
        _split(forwards, backwards, weights, warm_up=(chunks - 1) * size + ranks - 1 - rank, delay=rank)
        for rank in range(ranks)
    ]


def _handcrafted(ranks: int, rank: int, microbatches: int, *, ahead: int) -> Rows:
    forwards, backwards, weights = (rows(kind, np.arange(microbatches)) for kind in ("F", *BACKWARD))
    return _split(forwards, backwards, weights, warm_up=ahead * (ranks - 1 - rank), delay=ahead * rank)


def _split(forwards: Rows, backwards: Rows, weights: Rows, *, warm_up: int, delay: int) -> Rows:
    """Round i runs the next F, B i, and W i − delay; `warm_up` forwards run before the first."""
    turn = np.arange(len(forwards))
    return merge((forwards, turn - warm_up), (backwards, turn), (weights, turn + delay))
