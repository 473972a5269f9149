"""Where profiles are kept: data/samples/<profile>, and data/imported/samples/<profile> for published measurements."""

from __future__ import annotations

import re
from pathlib import Path

from sampling.errors import ConfigError

DATA = Path(__file__).resolve().parents[2] / "data"
IMPORTED = "imported"
"""Folder of DATA for other people's measurements and the regressors trained on them; never in the repository."""


def samples_directory(profile: str, data: Path = DATA) -> Path:
    """The folder of a profile's samples; ConfigError for a name that would lie outside `data`/samples."""
    if not re.fullmatch(r"[\w.-]*\w[\w.-]*", profile):
        raise ConfigError(f"profile: {profile!r} is not the name of a folder; use letters, digits, dots and dashes")
    return data / "samples" / profile


def home_of(profile: str, data: Path = DATA) -> Path:
    """The folder whose samples/ or regressors/ holds the profile: `data`, or its `imported` if only that one does."""
    imported = data / IMPORTED
    own, other = (
        any((home / kind / profile).is_dir() for kind in ("samples", "regressors")) for home in (data, imported)
    )
    return imported if other and not own else data
