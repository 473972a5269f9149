"""A measured run for a reader in a terminal."""

from __future__ import annotations

from predict.measure.measurement import Measurement
from predict.measure.system_noise import noise_note
from predict.report.units import duration


def measurement_text(measured: Measurement) -> str:
    ranks = len(measured.parameters_per_rank)
    lines = [
        f"{measured.run}: {duration(measured.median_us)} a step (median; p10 {duration(measured.p10_us)}, "
        f"p90 {duration(measured.p90_us)}), {measured.tokens_per_s:,.0f} tokens/s",
        f"  {len(measured.step_times_us)} steps on {ranks} rank(s) of {measured.threads} thread(s), "
        f"{measured.dropped_steps} dropped since other processes took the machine",
        f"  loss {measured.losses[0]:.3f} → {measured.losses[-1]:.3f}; torch {measured.versions['torch']}",
    ]
    if measured.noisy:
        lines.append(f"  {noise_note('most steps')}")
    return "\n".join(lines)
