"""How far steps composed of well-known calls still miss real ones: the residual of the profile's validation runs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from sampling.store import DATA

PRIOR = 0.08
"""Without validation runs of the profile: the spread between published runs of one configuration and what a sampled
composition predicts, 8 % at the quiet end (Megatron on H100, bf16)."""
LEAST_ROWS = 5


def of_step(profile_error: float, sources: Mapping[str, float]) -> float:
    """For a step of which some is analytic: the profile's own error says nothing of that part."""
    analytic = sources["analytic"]
    return (1 - analytic) * profile_error + analytic * PRIOR


def validation_path(profile: str) -> Path:
    """Where `predict validate` keeps a profile's runs, predicted beside measured."""
    return DATA / "published" / f"{profile}-steps.json"


def composition_error(profile: str) -> float:
    """Relative 90 % half-width: the conformal quantile of |log error| over the validation runs, or the prior."""
    path = validation_path(profile)
    if not path.is_file():
        return PRIOR
    errors = sorted(abs(math.log1p(row["error"])) for row in json.loads(path.read_text())["rows"])
    if len(errors) < LEAST_ROWS:
        return PRIOR
    return errors[min(len(errors) - 1, math.ceil(0.9 * (len(errors) + 1)) - 1)]
