"""The rows of a validation, predictions beside measurements, and their summary."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from predict.interval import Interval
from predict.measurement.measurement import DeviceRecord
from predict.serialise import version_of


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationRow:
    """One run: its prediction, made first, and its measured steps; `dropped_steps` were disturbed by other processes."""

    run: str
    plan: str
    predicted: Interval
    measured_us: float
    measured_low_us: float
    measured_high_us: float
    steps: int
    dropped_steps: int
    noise: str = ""
    """The kind of noise of the steps, with which the error says little; empty for quiet ones."""
    device: DeviceRecord | None = None
    """The GPU that trained; None for a CPU."""
    predicted_allocated_bytes: float | None = None
    """Predicted peak of the tensors, to hold beside the device's; None for a CPU."""
    feasible: bool = True
    """Whether the expected peak of memory fits the device."""

    @property
    def noisy(self) -> bool:
        return bool(self.noise)

    @property
    def error(self) -> float:
        """(predicted − measured) / measured."""
        return self.predicted.median_us / self.measured_us - 1

    @property
    def memory_error(self) -> float | None:
        """(predicted − measured) / measured peak of the tensors; None where it was not measured."""
        if self.device is None or not self.device.peak_allocated_bytes or self.predicted_allocated_bytes is None:
            return None
        return self.predicted_allocated_bytes / self.device.peak_allocated_bytes - 1

    @property
    def covered(self) -> bool:
        return self.predicted.covers(self.measured_us)


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Errors as fractions; `bias` is the mean signed error."""

    runs: int
    mean_error: float
    worst_error: float
    bias: float
    coverage: float
    dropped_steps: int
    noisy_runs: int


def summarise(rows: Sequence[ValidationRow]) -> Summary:
    """Errors and coverage over all rows, of which there is at least one."""
    errors = [row.error for row in rows]
    return Summary(
        runs=len(rows),
        mean_error=statistics.fmean(map(abs, errors)),
        worst_error=max(map(abs, errors)),
        bias=statistics.fmean(errors),
        coverage=statistics.fmean(row.covered for row in rows),
        dropped_steps=sum(row.dropped_steps for row in rows),
        noisy_runs=sum(row.noisy for row in rows),
    )


def validation_json(rows: Sequence[ValidationRow]) -> dict[str, Any]:
    """The rows and their summary as `--json` prints them and `data/published/` keeps them."""
    return {
        "version": version_of("validate"),
        "rows": [
            {
                "run": row.run,
                "plan": row.plan,
                "predicted_us": {
                    "median": row.predicted.median_us,
                    "low": row.predicted.low_us,
                    "high": row.predicted.high_us,
                },
                "measured_us": row.measured_us,
                "measured_p10_us": row.measured_low_us,
                "measured_p90_us": row.measured_high_us,
                "steps": row.steps,
                "dropped_steps": row.dropped_steps,
                "noisy": row.noisy,
                "noise": row.noise,
                "feasible": row.feasible,
                "error": row.error,
                "covered": row.covered,
                **_of_device(row),
            }
            for row in rows
        ],
        "summary": asdict(summarise(rows)),
    }


def _of_device(row: ValidationRow) -> dict[str, Any]:
    if row.device is None:
        return {}
    return {"device": asdict(row.device), "predicted_allocated_bytes": row.predicted_allocated_bytes}
