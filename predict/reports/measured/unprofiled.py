"""The lines on how a traced step was measured, of a ledger and of a replay alike."""

from __future__ import annotations

from predict.measured_runs.explain.measured import MeasuredStep, without_profiler
from predict.measurement.system_noise import noise_note
from sampling.number_text import duration


def measured_text(traced: MeasuredStep) -> list[str]:
    """The lines on the step without its profiler, and on its noise."""
    noise = [f"  {noise_note(traced.noise)}"] if traced.noise else []
    return [*without_profiler_text(traced), *noise]


def without_profiler_text(traced: MeasuredStep) -> list[str]:
    """The profiler's cost, and how it is known; nothing where it is not known, or is none."""
    untraced_us, traced_us = traced.untraced_us, traced.step_us
    told_by = "--log" if traced.logged_us else "the median of its run, timed before the trace"
    if profiler_us := traced_us - without_profiler(traced).step_us:
        return [
            f"  the step without its profiler by {told_by}; the traced step takes {duration(traced_us)}, and what the profiler adds, "
            f"{duration(profiler_us)}, is left out"
        ]
    if untraced_us is not None and untraced_us > traced_us:
        return [
            f"  the step without its profiler takes {duration(untraced_us)} by {told_by}, longer than the traced one: the ledger is of the "
            "traced step"
        ]
    return []
