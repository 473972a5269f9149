"""`predict validate rl`: a table of published RL steps, predicted and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from predict.rl.training import Estimate
from predict.serialise import version_of
from predict.validation.rl.comparison import as_json, compare, predict_rows
from predict.validation.rl.fit import refit
from predict.validation.rl.rows import read_rl_rows
from predict.validation.rl.sync_rows import is_of_transfers, sync_rows_json
from sampling.progress import progress_display


def validate_rl(truth: Path, estimate: Estimate) -> dict[str, Any]:
    """The errors of every phase of every row, as `--json` prints them; a row that cannot be expressed has its reason.

    A table of weight transfers has the one phase `update_weights`.
    """
    rows = read_rl_rows(truth)
    if is_of_transfers(rows[0].cells):
        return {"version": version_of("validate-rl"), **sync_rows_json(rows)}
    with progress_display("predicting") as progress:
        predicted = predict_rows(rows, estimate, progress)
    return as_json(compare(rows, predicted), refit(predicted.fitted(rows)))
