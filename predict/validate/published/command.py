"""The command: read the rows, calibrate where that was asked for, predict."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from predict.prices.whose_rows import require_known
from predict.run.calibration import Calibration
from predict.run.calibration_file import calibration_json, read_calibration
from predict.validate.published.calibrate import fit
from predict.validate.published.comparison import Comparison, compare
from predict.validate.published.row import read_rows
from sampling.errors import UserError
from sampling.files.disk import naming_the_disk, write_atomically
from sampling.files.places import SHIPPED_DATA
from sampling.progress import progress_display

SHIPPED_RUNS = SHIPPED_DATA / "published" / "runs.csv"
"""Runs whose figures papers and open repositories print, typed from them, each with its source."""
WHOSE = (
    "these are the runs that ship, data/published/runs.csv: README's first figure on published runs. Its others rest on a larger "
    "table, which does not ship: give yours with --truth (`predict schema --truth` describes its columns)"
)


def validate_published(
    *,
    truth: Path | None,
    profile: str,
    calibrate_on: Path | None,
    calibration: Path | None,
    tell: Callable[[str], None],
) -> tuple[list[Comparison], dict[str, Any] | None]:
    """Verdicts on the rows of `truth` (those that ship without one), and the calibration that was fitted, if any."""
    if profile:
        require_known(profile)
    if truth is None:
        tell(WHOSE)
    rows = list(read_rows(truth or SHIPPED_RUNS))
    content = None
    if calibrate_on:
        if calibration is None:
            raise UserError("--calibrate-on: needs a file to write the terms to; name it with --calibration")
        found = fit(list(read_rows(calibrate_on, "--calibrate-on")), profile, tell)
        figures = {name: value for name, value in asdict(found).items() if name != "calibration"}
        content = calibration_json(found.calibration, {"on": calibrate_on.name, **figures})
        with naming_the_disk(calibration):
            write_atomically(calibration, json.dumps(content, indent=1).encode())
        calibration_terms: Calibration | None = found.calibration
    else:
        calibration_terms = read_calibration(calibration) if calibration else None
    with progress_display("predicting") as progress:
        comparisons = compare(rows, profile=profile, calibration=calibration_terms, progress=progress)
    return comparisons, content
