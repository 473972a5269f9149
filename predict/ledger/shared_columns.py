"""Columns that the long tables of training and of RL steps share, their units, and the note on what times rest on."""

from __future__ import annotations

from collections.abc import Mapping

from predict.run.calibration_terms import Posterior

LEAST = 0.0005
"""Share of the times from which on a source is told."""
SHARED = """
model commit device n_cards ep tp pp sp cp seq_prompt seq_response global_batch micro_batch param_gb optim_gb activation_gb kv_gb
buffer_gb flops_required t_compute t_memory t_comm t_step tokens_per_s tokens_per_s_per_card mfu calibration_note
"""
"""The columns that tables of training estimates share. A sequence of pre-training is all prompt, and keeps no keys and values."""


def calibration_note(sources: Mapping[str, float], calibration: Posterior | None) -> str:
    """The sources of the times, in words: `83% measured, 17% analytic; calibrated on RUN and RUN, DATE`."""
    shares = ", ".join(f"{share:.0%} {name}" for name, share in sources.items() if share >= LEAST)
    if calibration is None:
        return f"{shares}; no calibration"
    dated = f", {calibration.date}" if calibration.date else ""
    return f"{shares}; calibrated on {' and '.join(each.run for each in calibration.runs)}{dated}"
