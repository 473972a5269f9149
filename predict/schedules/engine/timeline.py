"""The timeline of an order: when each action runs, and the bubble and memory that follow from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from predict.schedules.engine.folding import MadeWhenAsked, Pace, with_copies
from predict.schedules.engine.order import CHUNK, CODE, KIND, Folded, Order, Rows
from regressors.features.arrays import Floats

ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Timeline:
    """Start and end of every action, by rank in the order of `order.actions`, in the unit of the times given.

    The step starts at 0. A transfer is not part of an action, whether or not the sender waits for it.
    """

    order: Order
    start: Sequence[Floats]
    end: Sequence[Floats]
    rank_ends: Floats
    """End of each rank's last action."""
    form: Folded | None = None
    """The shorter form of a folded order that was timed; None where every action was."""
    short: Timeline | None = None
    """The timeline of that form: what is before the further copies runs when it does there, what is after them `later` later."""
    later: float = 0.0

    @property
    def core(self) -> Timeline:
        """The shorter timeline, or this one where there is none."""
        return self.short or self

    @property
    def makespan(self) -> float:
        """End of the last action."""
        return float(self.rank_ends.max())

    @property
    def busy(self) -> Floats:
        """Time that each rank computes."""
        lasting = [end - start for start, end in zip(self.core.start, self.core.end, strict=True)]
        busy: Floats = np.array([of_rank.sum() for of_rank in lasting])
        if self.form is not None:
            copies = zip(lasting, self.form.ends, self.form.lengths, strict=True)
            busy += self.form.more * np.array([of_rank[end - length : end].sum() for of_rank, end, length in copies])
        return busy

    @property
    def span(self) -> Floats:
        """Time of each rank from the start of its first action to the end of its last."""
        begins: Floats = np.array([start[0] for start in self.core.start])
        return self.rank_ends - begins

    @property
    def bubble_fraction(self) -> float:
        """1 − mean busy time / makespan: the share of all ranks' time that is idle."""
        return _missing(self.busy.mean(), self.makespan)

    @property
    def span_bubble_fraction(self) -> float:
        """1 − busiest rank's time / longest span: the bubble rate of Qi et al. 2024 (arXiv:2401.10241) for ZB-H2 and ZB-auto.

        Steps that follow each other without a gap can hide the difference between makespan and span.
        """
        return _missing(self.busy.max(), self.span.max())

    def when(self, rank: int, index: int) -> tuple[float, float]:
        """Start and end of one action, by its place in the order."""
        form = self.form
        if form is None or index < form.ends[rank]:
            return float(self.core.start[rank][index]), float(self.core.end[rank][index])
        missing = form.more * form.lengths[rank]
        if index < form.ends[rank] + missing:
            return float(self.start[rank][index]), float(self.end[rank][index])
        start, end = (float(of[rank][index - missing]) for of in (self.core.start, self.core.end))
        return start + self.later, end + self.later

    def peak_chunks(self, released_by_b: float = 0.0) -> tuple[int, ...]:
        """Most chunks whose activations are alive at once on each rank, rounded up."""
        return tuple(math.ceil(alive(row, released_by_b).max() - ROUNDING) for row in self.core.order.rows)

    def peak_bytes(self, chunk_bytes: ArrayLike) -> tuple[float, ...]:
        """Most bytes of activations alive at once on each rank; `chunk_bytes` is one number, or of shape (ranks, chunks)."""
        sizes = np.broadcast_to(np.asarray(chunk_bytes, dtype=float), (self.order.ranks, self.order.chunks))
        return tuple(
            float(alive(row, sizes=of_rank).max()) for row, of_rank in zip(self.core.order.rows, sizes, strict=True)
        )


def continued_timeline(order: Order, form: Folded, short: Timeline, pace: Pace) -> Timeline:
    """The timeline of a folded order from that of one of its forms, whose further copies come at this pace."""
    time, together = float(pace.time[0]), int(pace.together[0])
    return Timeline(
        order=order,
        start=MadeWhenAsked(order.ranks, lambda rank: with_copies(form, rank, short.start[rank], time, together)),
        end=MadeWhenAsked(order.ranks, lambda rank: with_copies(form, rank, short.end[rank], time, together)),
        rank_ends=short.rank_ends + form.more * time,
        form=form,
        short=short,
        later=form.more * time,
    )


def alive(row: Rows, released_by_b: float = 0.0, sizes: ArrayLike = 1.0) -> Floats:
    """After each action of a rank, the chunk activations alive, or their bytes if `sizes` has those of each chunk.

    They live from the start of the F to the end of the BW. Where the backward is split, W releases them, since the
    gradient of the weights still needs them, except the share that B releases.
    """
    change = np.zeros(len(CODE))
    change[[CODE[kind] for kind in ("F", "B", "W", "BW")]] = 1, -released_by_b, released_by_b - 1, -1
    size = np.asarray(sizes, dtype=float)
    return np.cumsum(change[row[:, KIND]] * (size[row[:, CHUNK]] if size.ndim else size))


def _missing(busy: float, total: float) -> float:
    """1 − busy / total, rounding below 0 off; nothing is missing from no time at all."""
    return max(0.0, float(1 - busy / total)) if total > 0 else 0.0
