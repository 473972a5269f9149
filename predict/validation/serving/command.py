"""`predict validate serving`: a folder of measured serving runs, predicted and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from predict.serving.coefficients import chosen_coefficients
from predict.validation.serving.capacity import capacities
from predict.validation.serving.closed_loop.compared import compared_loops
from predict.validation.serving.closed_loop.rows import read_closed_loops
from predict.validation.serving.closed_loop.summary import closed_loop_json
from predict.validation.serving.comparison import Comparison
from predict.validation.serving.replay import replayed
from predict.validation.serving.rows import read_stages
from predict.validation.serving.summary import as_json, mean_errors, transfer_json
from predict.validation.serving.transfer import transferred
from sampling.progress import progress_display


def validate_serving(truth: Path, model: str, coefficients: Path | None) -> dict[str, Any]:
    """The errors of every stage in the folder, as `--json` prints them; by the shipped coefficients of a model where none are given."""
    used = chosen_coefficients(model, coefficients)
    stages = read_stages(truth)
    comparison = Comparison(stages, used)
    rows = []
    with progress_display("simulating") as progress:
        for case in comparison.cases:
            rows.append(comparison.compared(case))
            progress(len(rows), len(comparison.cases), case.stage.experiment)
        replays = list(replayed(truth, comparison))
        loops = closed_loop_json(*compared_loops(read_closed_loops(truth), used, progress))
    content = as_json(rows, comparison.refused, list(capacities(truth, comparison)), model=used.model)
    return {
        **content,
        "transfer": transfer_json(transferred(stages, comparison.model)),
        "replay": {"stages": len(replays), **mean_errors(replays)},
        "closed_loop": loops,
    }
