"""Experts to time and price."""

from typing import Any

from sampling.operators.experts import ExpertMLP


def expert_mlp(**sizes: Any) -> ExpertMLP:
    """Experts of these sizes; where none is given, gated ones on one rank with an even share of the tokens each."""
    return ExpertMLP(**{"ep": 1, "tp": 1, "gated": True, "distribution": "balanced"} | sizes)
