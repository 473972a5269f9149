"""How far the time models can be trusted, on our own samples and on published measurements."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sampling.errors import SamplesError
from sampling.store.profiles import DATA


def validate_samples(published: Path | None) -> dict[str, Any]:
    """Judge every profile of data/samples and what `published` holds; SamplesError where there is nothing to judge."""
    from regressors.accuracy.run import as_json, judge_units
    from regressors.accuracy.transfer import transfers
    from regressors.accuracy.units import own_units, published_units
    from regressors.progress import progress_display

    units = [*own_units(DATA / "samples"), *(published_units(published) if published else ())]
    if not units:
        raise SamplesError(f"{DATA / 'samples'}: no samples to judge; run `make sample`, or give a folder with --data")
    with progress_display("judging") as progress:
        judged = judge_units(units, jobs=os.cpu_count() or 1, progress=progress)
    return as_json(judged, list(transfers(units)))
