"""Time models that are quick to fit, for tests of what is around them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from regressors.fitting.settings_search import Rung
from regressors.models.candidates import DRAWN
from regressors.models.capacity import FEW

TREES, ROUNDS, ETA = 6, 12, 0.5
"""Trees of a forest and rounds of boosting, an eighth of the usual or so, in as much larger steps."""


@contextmanager
def few_trees() -> Iterator[None]:
    """Ensembles have a few trees, boosted in a few large steps, and their search of settings judges two."""
    small = replace(FEW, trees=TREES, boosting_rounds=ROUNDS, eta=ETA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regressors.models.capacity.CAPACITIES", ((sys.maxsize, small),))
        patch.setattr("regressors.fitting.settings_search.RUNGS", (Rung(rows=100, share=0.3, folds=3, kept=1),))
        patch.setattr("regressors.fitting.settings_search.DRAWN", {kind: drawn[:2] for kind, drawn in DRAWN.items()})
        yield
