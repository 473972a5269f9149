"""The log of a server: rates over intervals, the latencies of a benchmark, and the engine's arguments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from predict.measured_runs.steady_state import Stated


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedInterval:
    """One line of a server about the time since the line before; None is what it does not state."""

    running: int
    """Requests that run at its end."""
    waiting: int
    prompt_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None

    @property
    def step_us(self) -> float | None:
        """The decode step that follows where every running request gets a token a step: without prompts in between, nor drafts."""
        if self.prompt_tokens_per_s or not self.output_tokens_per_s or not self.running:
            return None
        return 1e6 * self.running / self.output_tokens_per_s


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedLog:
    """A server's log, or the file of a benchmark of one."""

    engine: str
    intervals: Sequence[ServedInterval] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    """Figures of a benchmark, named with their units: `output_tokens_per_s`, `ttft_median_us`, …"""
    stated: Stated = field(default_factory=Stated)
