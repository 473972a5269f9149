"""The error that a profile's validation runs showed: predicted steps beside measured ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sampling.errors import SamplesError
from sampling.files.faults import Fault, shown
from sampling.files.schema import read
from sampling.store.profiles import OWN, SHIPPED, home_of

LEAST_ROWS = 5
"""Validation runs below which their quantile says nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationFile:
    """The keys of a profile's validation runs; `error` of a row is predicted / measured − 1."""

    HEADER: ClassVar[Mapping[str, Any]] = {"version": 1}

    rows: tuple[Mapping[str, Any], ...]
    summary: Mapping[str, Any]

    def contradictions(self) -> Iterator[Fault]:
        for index, row in enumerate(self.rows):
            error = row.get("error") if isinstance(row, Mapping) else None
            if not isinstance(error, int | float) or not -1 < error < math.inf:
                yield Fault(path=f"rows[{index}].error", problem=f"{shown(error)} is not a relative error above -1")


def known_error(profile: str, *, on_cpu: bool) -> float | None:
    """The error of the profile's own validation runs; on a CPU without them, that of the shipped profile's: steps composed of rows
    that nobody validated are known no better than those that were."""
    own = profile_error(profile)
    return profile_error(SHIPPED) if own is None and on_cpu else own


def validation_path(profile: str, home: Path | None = None) -> Path:
    """The file in which `predict validate` keeps a profile's runs, predicted beside measured; `home` is the profile's, if known."""
    return (home or home_of(profile)) / "published" / f"{profile}-steps.json"


def profile_error(profile: str) -> float | None:
    """Half-width in log time at 90 %: the conformal quantile of |log error| over the profile's validation runs.

    None with fewer than LEAST_ROWS runs. Raises SamplesError for a damaged file.
    """
    path = validation_path(profile)
    if not path.is_file():
        return None
    fix = f"restore the file, or write it anew with `predict validate {OWN} --profile {profile} --keep`"
    rows = read(ValidationFile, path, error=SamplesError, fix=fix).rows
    errors = sorted(abs(math.log1p(row["error"])) for row in rows)
    if len(errors) < LEAST_ROWS:
        return None
    return errors[min(len(errors) - 1, math.ceil(0.9 * (len(errors) + 1)) - 1)]
