"""What the engine makes of an order: when each action runs, and what follows from that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predict.schedules.order import Order

Floats = NDArray[np.float64]
# A chunk's activations live from the start of its F to the end of its BW; where the backward is split B keeps them,
# since the gradient of the weights needs them still, and W lets them go.
LIVE = {"F": 1, "B": 0, "W": -1, "BW": -1}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Timeline:
    """Start and end of every action, by rank in the order of `order.actions`, in the unit of the times given.

    The step starts at 0. A transfer is no part of an action, whether or not the sender waits for it.
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
        """By rank, the time in which it computes."""
        return np.array([(end - start).sum() for start, end in zip(self.start, self.end, strict=True)])

    @property
    def idle(self) -> Floats:
        """By rank, the time of the makespan in which it does not compute."""
        return self.makespan - self.busy

    @property
    def span(self) -> Floats:
        """By rank, from the start of its first action to the end of its last."""
        return np.array([end[-1] - start[0] for start, end in zip(self.start, self.end, strict=True)])

    @property
    def bubble_fraction(self) -> float:
        """1 − mean busy time / makespan: the share of all ranks' time that is idle."""
        return float(1 - self.busy.mean() / self.makespan)

    @property
    def span_bubble_fraction(self) -> float:
        """1 − busiest rank's time / longest span: the bubble rate of Qi et al. 2024 (arXiv:2401.10241) for ZB-H2 and ZB-auto.

        Steps that follow each other without a gap can hide the difference between makespan and span.
        """
        return float(1 - self.busy.max() / self.span.max())

    @property
    def peak_activations(self) -> tuple[int, ...]:
        """By rank, the most chunks whose activations are alive at once."""
        return tuple(int(live.max()) for live in self._live())

    @property
    def peak_at(self) -> tuple[float, ...]:
        """By rank, the start of the forward that first reaches `peak_activations`."""
        return tuple(float(start[live.argmax()]) for start, live in zip(self.start, self._live(), strict=True))

    def _live(self) -> Iterator[NDArray[np.intp]]:
        for actions in self.order.actions:
            yield np.cumsum([LIVE[action.kind] for action in actions])
