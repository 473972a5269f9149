"""Quick fits for every test but those of the kinds of model themselves."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.regressors.few_trees import few_trees

OF_MODELS = Path(__file__).with_name("models")


@pytest.fixture(autouse=True, scope="module")
def quick_fits(request: pytest.FixtureRequest) -> Iterator[None]:
    with nullcontext() if OF_MODELS in request.path.parents else few_trees():
        yield
