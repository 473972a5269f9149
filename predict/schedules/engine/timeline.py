"""The timeline of an order: when each action runs, and the bubble and memory that follow from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from predict.schedules.engine.order import CHUNK, CODE, KIND, Floats, Order, Rows

ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Timeline:
    """Start and end of every action, by rank in the order of `order.actions`, in the unit of the times given.

    The step starts at 0. A transfer is not part of an action, whether or not the sender waits for it.
    """

    order: Order
    start: tuple[Floats, ...]
    end: tuple[Floats, ...]

    @property
    def makespan(self) -> float:
        """End of the last action."""
        return float(max(end[-1] for end in self.end))

    @property
    def busy(self) -> Floats:
        """Time that each rank computes."""
        return np.array([(end - start).sum() for start, end in zip(self.start, self.end, strict=True)])

    @property
    def span(self) -> Floats:
        """Time of each rank from the start of its first action to the end of its last."""
        return np.array([end[-1] - start[0] for start, end in zip(self.start, self.end, strict=True)])

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

    def peak_chunks(self, released_by_b: float = 0.0) -> tuple[int, ...]:
        """Most chunks whose activations are alive at once on each rank, rounded up."""
        return tuple(math.ceil(alive(row, released_by_b).max() - ROUNDING) for row in self.order.rows)

    def peak_bytes(self, chunk_bytes: ArrayLike) -> tuple[float, ...]:
        """Most bytes of activations alive at once on each rank; `chunk_bytes` is one number, or of shape (ranks, chunks)."""
        sizes = np.broadcast_to(np.asarray(chunk_bytes, dtype=float), (self.order.ranks, self.order.chunks))
        return tuple(
            float(alive(row, sizes=of_rank).max()) for row, of_rank in zip(self.order.rows, sizes, strict=True)
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
