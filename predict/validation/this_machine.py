"""The runs that `predict validate this-machine` holds against real steps on this machine's CPU."""

from __future__ import annotations

import importlib.util

from predict.validation.measured_runs import ValidatedRun
from sampling.files.places import CONFIGS


def runs_of_this_machine() -> list[ValidatedRun]:
    """The runs of `configs/runs/this-machine`, and those of the transformers library's Llama where it is installed."""
    folder = CONFIGS / "runs"
    found = [
        ValidatedRun(config=path, implementation="torch") for path in sorted((folder / "this-machine").glob("*.yml"))
    ]
    if importlib.util.find_spec("transformers") is not None:
        others = sorted((folder / "transformers").glob("*.yml"))
        found += [ValidatedRun(config=path, implementation="transformers") for path in others]
    return found
