"""The content of a training log: its steps as the framework tells them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedStep:
    """One line of a log about a step, or about the mean of the steps since the line before; None is what it does not tell."""

    step: int
    time_us: float | None = None
    samples_per_s: float | None = None
    """Sequences of the whole run."""
    tokens_per_s_per_gpu: float | None = None
    tflops_per_gpu: float | None = None
    """TFLOP/s per GPU, by the framework's own count of a step's FLOPs."""
    batch: int | None = None
    """Sequences of the global batch."""
    seq_len: int | None = None
    skipped: bool = False
    """The optimizer was skipped, as fp16's loss scaling does after an overflow."""

    @property
    def timed(self) -> bool:
        """Whether a step time follows from the line, for a known batch."""
        return any((self.time_us, self.samples_per_s, self.tokens_per_s_per_gpu))


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLog:
    """A log, read: the framework that wrote it, and its timed steps in the order of the file, those of the last start alone."""

    place: str
    framework: str
    steps: Sequence[LoggedStep]
    peak_bytes: float | None
    """The largest peak of allocated memory that any line tells."""
    starts: int
    """Times that the step numbers began anew: a run that was restarted has several."""
    date: str
    """Day and time of the last line that has one, such as 2026-03-12T10:22:00; empty without any."""
