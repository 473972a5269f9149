"""Protocols of built calls: `Workload`, which all have, and others that only some have."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from sampling.call import Phase


class Workload(Protocol):
    """A built call, ready to be run phase by phase on one device."""

    def prepare(self, phase: Phase) -> None:
        """Untimed: bring the state to just before `phase`, for example a new graph for a backward."""

    def run(self, phase: Phase) -> None:
        """Timed: do the phase once."""


@runtime_checkable
class Rotates(Protocol):
    """A workload that runs on copies in turn, and knows whether that alone leaves a cache cold."""

    def rotates_through(self, cache_bytes: float) -> bool: ...


@runtime_checkable
class Forgets(Protocol):
    """A workload that can drop its graphs: backward runs on the stream of its forward, which must be the captured one."""

    def forget(self) -> None: ...


@runtime_checkable
class Noted(Protocol):
    """A workload that says which of several kernels computes it; empty if there is nothing to say."""

    note: str


@runtime_checkable
class NamesKernel(Protocol):
    """A workload that knows which of several kernels computes it; empty if there is no choice, or nobody says."""

    ran_kernel: str


@runtime_checkable
class SelfTimed(Protocol):
    """A workload that times itself, since only a part of its run counts."""

    def stopwatch(self, run: Callable[[], None]) -> float:
        """Do the run; µs of the part that counts."""
