"""Options of `predict search` that only a search of training plans has."""

from __future__ import annotations

OF_TRAINING_PLANS = (
    *("model", "gpus", "batch", "cluster", "max_gpus", "min_interval_overlap", "tokens", "pareto", "write"),
    *("report", "measure", "why", "save", "jobs", "address", "max_memory", "backend"),
)
"""Names of the options, which a search of RL steps or of servers refuses."""
