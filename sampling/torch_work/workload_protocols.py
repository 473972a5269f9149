"""What a workload may offer beside `prepare` and `run`, for a device's sake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable


@runtime_checkable
class Rotates(Protocol):
    """It runs on copies in turn, and knows whether that alone leaves a cache cold."""

    def rotates_through(self, cache_bytes: float) -> bool: ...


@runtime_checkable
class Forgets(Protocol):
    """It can let go of its graphs: a backward runs on the stream of its forward, which a capture must see too."""

    def forget(self) -> None: ...


@runtime_checkable
class Noted(Protocol):
    """It says which way of several it computes its operator; empty if there is nothing to say."""

    note: str


@runtime_checkable
class SelfTimed(Protocol):
    """A workload that alone knows which part of a run is to be timed."""

    def stopwatch(self, run: Callable[[], None]) -> float:
        """Do the run; µs of what counts."""
