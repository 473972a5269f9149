"""Calls that cannot be timed here are left out with a note, on all ranks or on none."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from sampling.call import Call, Phase
from sampling.errors import ConfigError, SkippedError, UserError
from sampling.hardware.cluster import Cluster
from sampling.ranks.rank import rank_from
from sampling.timing.call_memory import MEMORY_SHARE, fits
from sampling.timing.timer import Ranks
from sampling.torch_work.workload_protocols import Rotates, Workload

OUT_OF_MEMORY = "ran out of memory"
ALLOCATION = "can't allocate memory"
"""In the words of torch's allocator for the CPU, which has no error of its own."""


@dataclass(slots=True)
class Notes:
    """Why calls were left out: each reason is told once, and at the end how often."""

    tell: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)

    said: set[str] = field(default_factory=set)

    def say(self, text: str) -> None:
        """Something worth knowing about a call that is timed; each text once."""
        if text not in self.said:
            self.said.add(text)
            self.tell(text)

    def add(self, reason: str) -> None:
        if not self.counts[reason]:
            self.tell(f"left out: {reason}")
        self.counts[reason] += 1

    def close(self) -> None:
        if self.counts:
            each = "; ".join(f"{count} × {reason}" for reason, count in self.counts.items())
            self.tell(f"{self.counts.total()} calls left out in all: {each}")


def tell_on_stderr(text: str) -> None:
    """From the first rank alone: all have the same to say."""
    try:
        rank = rank_from(os.environ)
    except UserError:
        rank = None
    if rank is None or rank.rank == 0:
        print(text, file=sys.stderr)


def refusal(call: Call, cluster: Cluster) -> str:
    """Why the call cannot run on such a device, by its fields alone; '' if it may."""
    try:
        for phase in call.PHASES:
            call.terms(phase, cluster)
    except ConfigError as error:
        return f"{call.NAME}: {error}"
    if not fits(call, cluster):
        return f"{call.NAME}: more than {MEMORY_SHARE:.0%} of the memory of {cluster.gpu.name}"
    return ""


def failure(error: Exception, *, spans_ranks: bool) -> str:
    """The note in place of an error that only this call has; '' for one that must end the session.

    What torch cannot do with a shape or a dtype it says as a RuntimeError; one of a communication, or of the device itself
    (torch.AcceleratorError), is nothing to go on after.
    """
    import torch

    if isinstance(error, SkippedError):
        return str(error)
    if isinstance(error, torch.OutOfMemoryError) or (isinstance(error, RuntimeError) and ALLOCATION in str(error)):
        return OUT_OF_MEMORY
    if spans_ranks or isinstance(error, torch.AcceleratorError) or not isinstance(error, RuntimeError):
        return ""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def agreed(reason: str, ranks: Ranks) -> str:
    """The reason if any rank has one; a rank that has none of its own says so."""
    if ranks.largest(float(bool(reason))) == 0:
        return ""
    return reason or "another rank could not"


class Guarded:
    """A workload that stops doing anything once it failed, so that this rank keeps step with the others until all agree.

    A call that spans ranks cannot: the others wait inside it for what this rank will not send, and the error ends the job.
    """

    def __init__(self, workload: Workload, *, spans_ranks: bool) -> None:
        self._workload = workload
        self._spans_ranks = spans_ranks
        self.reason = ""

    def prepare(self, phase: Phase) -> None:
        self._unless_failed(lambda: self._workload.prepare(phase))

    def run(self, phase: Phase) -> None:
        self._unless_failed(lambda: self._workload.run(phase))

    def rotates_through(self, cache_bytes: float) -> bool:
        return isinstance(self._workload, Rotates) and self._workload.rotates_through(cache_bytes)

    def _unless_failed(self, work: Callable[[], None]) -> None:
        if self.reason:
            return
        try:
            work()
        except Exception as error:
            if self._spans_ranks and not isinstance(error, SkippedError):
                raise
            self.reason = failure(error, spans_ranks=self._spans_ranks)
            if not self.reason:
                raise
