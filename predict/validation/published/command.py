"""The command: read the rows, calibrate where that was asked for, predict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from predict.prices.sample_provenance import require_known
from predict.run.calibration_file import calibration_text, read_calibration
from predict.run.calibration_terms import Posterior
from predict.validation.published.calibrate import fitted_to
from predict.validation.published.comparison import Comparison, compare
from predict.validation.published.row import read_rows
from sampling.errors import UserError
from sampling.files.disk import naming_the_disk, require_place, write_atomically
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
) -> tuple[list[Comparison], Posterior | None]:
    """Verdicts on the rows of `truth` (those that ship without one), and the calibration that was used, if any."""
    if profile:
        require_known(profile)
    if truth is None:
        tell(WHOSE)
    rows = list(read_rows(truth or SHIPPED_RUNS))
    if calibrate_on:
        if calibration is None:
            raise UserError("--calibrate-on: needs a file to write the terms to; name it with --calibration")
        require_place(calibration)
        fitted = fitted_to(list(read_rows(calibrate_on, "--calibrate-on")), profile, tell)
        with naming_the_disk(calibration):
            write_atomically(calibration, calibration_text(fitted).encode())
        posterior: Posterior | None = fitted
    else:
        posterior = read_calibration(calibration) if calibration else None
    with progress_display("predicting") as progress:
        comparisons = compare(rows, profile=profile, calibration=posterior, progress=progress)
    return comparisons, posterior
