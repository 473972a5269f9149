"""Stages simulated with the arrivals and lengths of their real requests, in place of a drawn load of their rate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from predict.serving.scheduler.traffic import Traffic, every
from predict.validation.serving.comparison import SUB, Compared, Comparison
from sampling.errors import SamplesError
from sampling.files.regular import is_missing

if TYPE_CHECKING:
    import pandas as pd

FILE = "serving_requests.parquet"
COLUMNS = ("experiment", "stage", "arrival_us", "input_tokens", "output_len")


def replayed(folder: Path, comparison: Comparison) -> Iterator[Compared]:
    """The stages below saturation that the folder's table of requests has; none without a table. SamplesError for one of another schema."""
    if is_missing(folder / FILE):
        return
    requests = _read(folder / FILE)
    of_stage = dict(iter(requests.groupby(["experiment", "stage"], observed=True)))
    for case in comparison.cases:
        rows = of_stage.get((case.stage.experiment, case.stage.stage))
        if rows is not None and case.stage.regime == SUB:
            yield comparison.compared(case, every(_traffic(rows), case.server.placement.dp))


def _read(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(path, columns=list(COLUMNS))
    except (OSError, ValueError, KeyError) as error:
        raise SamplesError(f"{path}: {error}; give a table with the columns {', '.join(COLUMNS)}") from None


def _traffic(rows: pd.DataFrame) -> Traffic:
    """The requests of one stage. The table does not tell which prompt each sent: those of one length are taken for the same."""
    rows = rows.sort_values("arrival_us", kind="stable")
    arrival, prompt = rows["arrival_us"].to_numpy(np.float64), rows["input_tokens"].to_numpy(np.int64)
    return Traffic(
        arrival_us=arrival - arrival[0],
        prompt=prompt,
        output=rows["output_len"].to_numpy(np.int64),
        shared=prompt.copy(),
        group=np.unique(prompt, return_inverse=True)[1],
    )
