"""`predict validate rl`: a table of published RL steps, predicted and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from predict.rl.training import Estimate
from predict.validate.rl.comparison import as_json, compare
from predict.validate.rl.rows import read_rl_rows
from sampling.progress import progress_display


def validate_rl(truth: Path, estimate: Estimate) -> dict[str, Any]:
    """The errors of every phase of every row, as `--json` prints them; a row that cannot be expressed has its reason."""
    rows = read_rl_rows(truth)
    with progress_display("predicting") as progress:
        return as_json(compare(rows, estimate, progress))
