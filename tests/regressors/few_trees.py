"""Time models that are quick to fit, for tests of what is around them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from regressors.models.capacity import FEW


@contextmanager
def few_trees() -> Iterator[None]:
    """Ensembles have a few trees, boosted in as few large steps: an eighth of the usual."""
    small = replace(FEW, trees=6, boosting_rounds=12, eta=0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regressors.models.capacity.CAPACITIES", ((sys.maxsize, small),))
        patch.setattr("regressors.models.tuned_trees.SEARCH_TREES", 2)
        yield
