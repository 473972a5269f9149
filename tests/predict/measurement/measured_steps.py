"""Measured steps of which a test states only what it needs."""

from typing import Any

from predict.measurement.measurement import Measurement


def measured(step_times_us: tuple[float, ...], **changes: Any) -> Measurement:
    """A quiet measurement, unless changed."""
    values: dict[str, Any] = {
        "run": "a",
        "implementation": "torch",
        "others_shares": (0.0,) * len(step_times_us),
        "losses": (4.0, 3.0),
        "tokens_per_step": 1000,
        "parameters_per_rank": (7,),
        "threads": 2,
        "versions": {"torch": "2"},
    }
    return Measurement(step_times_us=step_times_us, **values | changes)
