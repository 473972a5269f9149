"""Where profiles are kept: samples/<profile> of the user's data or of the shipped, imported/samples/<profile> for published measurements."""

from __future__ import annotations

import re
from pathlib import Path

from sampling.errors import ConfigError
from sampling.files.places import SHIPPED_DATA, own_data

IMPORTED = "imported"
"""Folder of the user's data for other people's measurements and the regressors trained on them; never in the repository."""


def samples_directory(profile: str, data: Path | None = None) -> Path:
    """The folder of a profile's samples, by default in the user's data; ConfigError for a name that would lie outside."""
    if not re.fullmatch(r"[\w.-]*\w[\w.-]*", profile):
        raise ConfigError(f"profile: {profile!r} is not the name of a folder; use letters, digits, dots and dashes")
    return (data or own_data()) / "samples" / profile


def home_of(profile: str, data: Path | None = None) -> Path:
    """The folder whose samples/ or regressors/ holds the profile: `data` (by default the user's), else its `imported`, else the shipped.

    `data` itself where none does.
    """
    data = data or own_data()
    homes = (data, data / IMPORTED, SHIPPED_DATA)
    kinds = ("samples", "regressors")
    return next((home for home in homes if any((home / kind / profile).is_dir() for kind in kinds)), data)
