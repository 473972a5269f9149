"""The result of running a config for real: the time of every step, and the evidence that it trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from predict.measure.system_noise import quiet_steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """Steps in the order they ran, without the warm-up. `losses` are those of all steps, the warm-up's first."""

    run: str
    implementation: str
    step_times_us: tuple[float, ...]
    others_shares: tuple[float, ...]
    """Share of the machine that other processes took during each step, 0 to 1."""
    losses: tuple[float, ...]
    tokens_per_step: int
    parameters_per_rank: tuple[int, ...]
    threads: int
    """CPU threads of one rank."""
    versions: dict[str, str]

    @property
    def kept_us(self) -> tuple[float, ...]:
        """Times of the steps that other processes did not disturb; of all steps if those are fewer than half."""
        return tuple(self.step_times_us[index] for index in quiet_steps(self.others_shares)[0])

    @property
    def noisy(self) -> bool:
        """Other processes disturbed more than half of the steps, so that none could be omitted."""
        return quiet_steps(self.others_shares)[1]

    @property
    def dropped_steps(self) -> int:
        return len(self.step_times_us) - len(self.kept_us)

    @property
    def median_us(self) -> float:
        return self._percentile_us(50)

    @property
    def p10_us(self) -> float:
        return self._percentile_us(10)

    @property
    def p90_us(self) -> float:
        return self._percentile_us(90)

    @property
    def tokens_per_s(self) -> float:
        return self.tokens_per_step / self.median_us * 1e6

    def _percentile_us(self, percent: float) -> float:
        return float(np.percentile(self.kept_us, percent))

    def to_json(self) -> dict[str, Any]:
        """The stable shape that `--json` prints."""
        return {
            "run": self.run,
            "implementation": self.implementation,
            "step_time_us": {
                "median": self.median_us,
                "p10": self.p10_us,
                "p90": self.p90_us,
                "all": list(self.step_times_us),
            },
            "tokens_per_s": self.tokens_per_s,
            "others_shares": list(self.others_shares),
            "dropped_steps": self.dropped_steps,
            "noisy": self.noisy,
            "loss": {"first": self.losses[0], "last": self.losses[-1]},
            "parameters_per_rank": list(self.parameters_per_rank),
            "threads": self.threads,
            "versions": self.versions,
        }


def pool(rounds: Sequence[Measurement]) -> Measurement:
    """The steps of several rounds of one run as one measurement."""
    return replace(
        rounds[0],
        step_times_us=tuple(time for each in rounds for time in each.step_times_us),
        others_shares=tuple(share for each in rounds for share in each.others_shares),
        losses=tuple(loss for each in rounds for loss in each.losses),
    )
