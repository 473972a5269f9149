"""DeepSeek's bidirectional pipeline and its V-shaped half: a forward and a backward run together as one pair."""

import numpy as np
from numpy.typing import NDArray

from predict.schedules.building import each_microbatch, schedule, two_chunks
from predict.schedules.engine.order import CHUNK, CODE, KIND, MICROBATCH, PAIRED, Rows, opposite_chains, v_shape

Step = tuple[tuple[str, int, bool], ...]
"""Kind, chunk and whether it is half of a pair, of actions in a row."""


def _pair(forward_chunk: int) -> Step:
    return ("F", forward_chunk, True), ("BW", 1 - forward_chunk, True)


@schedule(
    "dualpipe",
    citation="DeepSeek-AI 2024, DeepSeek-V3 Technical Report, arXiv:2412.19437, section 3.2.1 and figure 5; "
    "deepseek-ai/DualPipe",
    splits_backward=True,
    supports=lambda ranks, chunks, microbatches: (
        two_chunks(ranks, chunks, microbatches)
        or (None if ranks % 2 == 0 else f"needs an even number of ranks, not {ranks}")
        or (None if microbatches % 2 == 0 else f"needs an even number of microbatches, not {microbatches}")
        or _enough(ranks, microbatches)
    ),
    placement=opposite_chains,
    period=lambda ranks: 2,
)
def dualpipe(ranks: int, chunks: int, microbatches: int) -> list[Rows]:
    """Each rank holds two stages, of two opposite chains of p: the weights twice, and p + 1 activations of a stage.

    Half of the microbatches enter at either end. Counts of phases are those of the half of the ranks it stands in.
    """
    half = ranks // 2
    order = []
    for rank in range(ranks):
        inner = min(rank, ranks - 1 - rank)
        made = _phases(half, inner, main=microbatches // 2 - ranks + inner + 1)
        made[:, CHUNK] ^= rank >= half
        order.append(made)
    return order


@schedule(
    "dualpipev",
    citation="DualPipeV, the cut-in-half form of DualPipe: deepseek-ai/DualPipe; torch's ScheduleDualPipeV",
    splits_backward=True,
    supports=lambda ranks, chunks, microbatches: (
        two_chunks(ranks, chunks, microbatches) or _enough(ranks, microbatches)
    ),
    placement=v_shape,
    period=each_microbatch,
)
def dualpipev(ranks: int, chunks: int, microbatches: int) -> list[Rows]:
    """DualPipe folded into a V, so that the weights are held once: 2p + 1 activations of half a rank."""
    return [_phases(ranks, rank, main=microbatches - 2 * ranks + rank + 1) for rank in range(ranks)]


def _enough(ranks: int, microbatches: int) -> str | None:
    if microbatches >= 2 * ranks:
        return None
    return f"needs at least 2 × ranks = {2 * ranks} microbatches, not {microbatches}"


def _phases(ranks: int, rank: int, *, main: int) -> Rows:
    """Warm-up (phases 1 to 3 of DualPipe's own code), `main` steady rounds (phase 4) and cool-down (phases 5 to 8).

    Microbatches pass `ranks` ranks before they turn. On the rank where they turn, the first pair runs as two actions, which
    makes the bubble smaller.
    """
    outer = ranks - rank - 1
    inner = rank + 1
    f0, f1 = (("F", chunk, False) for chunk in (0, 1))
    bw0, bw1 = (("BW", chunk, False) for chunk in (0, 1))
    b0, b1, w = ("B", 0, False), ("B", 1, False), ("W", 0, False)
    warm_up: list[Step] = [(f0,)] * (2 * outer) + [(f0, f1)] * inner + [(b1, w, f1)] * outer
    first = _pair(0) if outer else (f0, bw1)
    steady: list[Step] = [first + _pair(1)] + [_pair(0) + _pair(1)] * (main - 1)
    cool_down: list[Step] = [(bw1, *_pair(1))] * outer
    # in the second half of the last round trips W waits, so that B can run ahead
    wholes, odd = inner // 2, (rank % 2 == 1)
    for turn in range(inner):
        late1 = turn > wholes or (turn == wholes and odd)
        late0 = turn >= wholes
        cool_down.append((b1 if late1 else bw1, b0 if late0 else bw0))
    cool_down += [(w, b0)] * outer + [(w,)] * inner
    return _number([action for step in (*warm_up, *steady, *cool_down) for action in step])


def _number(actions: list[tuple[str, int, bool]]) -> Rows:
    """Microbatches in order, by chunk for F and for B with BW; the k-th W belongs to the k-th B."""
    made = np.zeros((len(actions), 4), np.int32)
    made[:, KIND] = [CODE[kind] for kind, _, _ in actions]  # type: ignore[index]
    made[:, CHUNK] = [chunk for _, chunk, _ in actions]
    made[:, PAIRED] = [paired for _, _, paired in actions]
    kind = made[:, KIND]
    forward, weight = kind == CODE["F"], kind == CODE["W"]
    for chunk in (0, 1):
        for passing in (forward, ~forward & ~weight):
            _count(made, passing & (made[:, CHUNK] == chunk))
    waiting = made[kind == CODE["B"]]
    made[weight, MICROBATCH], made[weight, CHUNK] = waiting[:, MICROBATCH], waiting[:, CHUNK]
    return made


def _count(made: Rows, which: NDArray[np.bool_]) -> None:
    made[which, MICROBATCH] = np.arange(np.count_nonzero(which))
