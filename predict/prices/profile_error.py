"""The error that a profile's validation runs showed: predicted steps beside measured ones."""

from __future__ import annotations

import json
import math
from pathlib import Path

from sampling.store.profiles import DATA

LEAST_ROWS = 5
"""Validation runs below which their quantile says nothing."""


def validation_path(profile: str) -> Path:
    """The file in which `predict validate` keeps a profile's runs, predicted beside measured."""
    return DATA / "published" / f"{profile}-steps.json"


def profile_error(profile: str) -> float | None:
    """Half-width in log time at 90 %: the conformal quantile of |log error| over the profile's validation runs.

    None with fewer than LEAST_ROWS runs.
    """
    path = validation_path(profile)
    if not path.is_file():
        return None
    errors = sorted(abs(math.log1p(row["error"])) for row in json.loads(path.read_text())["rows"])
    if len(errors) < LEAST_ROWS:
        return None
    return errors[min(len(errors) - 1, math.ceil(0.9 * (len(errors) + 1)) - 1)]
