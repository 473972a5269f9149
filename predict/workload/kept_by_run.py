"""Objects made of runs, kept for runs that are equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from predict.run.plan import Batch, Plan
from predict.run.training_run import TrainingRun

Made = TypeVar("Made")


class KeptByRun(Generic[Made]):
    """Things made of runs, each found again for an equal run. Where `most` are kept, they are dropped and made anew."""

    def __init__(self, make: Callable[[TrainingRun], Made], most: int) -> None:
        self._make, self._most = make, most
        self._kept: dict[tuple[Plan, Batch, str], list[tuple[TrainingRun, Made]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def of(self, run: TrainingRun) -> Made:
        key = run.plan, run.batch, run.precision
        for known, made in self._kept.get(key, ()):
            if known == run:
                return made
        if len(self) >= self._most:
            self._kept.clear()
        made = self._make(run)
        self._kept.setdefault(key, []).append((run, made))
        return made
