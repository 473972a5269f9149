"""Constants read off published runs: within their bounds, used, and of no single source."""

from __future__ import annotations

import re

import pytest

from predict.prices import published_constants
from predict.prices.published_constants import PublishedConstant
from sampling.files.places import PACKAGE

CONSTANTS = {name: value for name, value in vars(published_constants).items() if isinstance(value, PublishedConstant)}


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_is_within_its_bounds_and_used(name: str) -> None:
    constant = CONSTANTS[name]
    assert constant.low < constant.value < constant.high
    files = [path for path in (PACKAGE.parent / "predict").rglob("*.py") if path.stem != "published_constants"]
    assert any(f"{name}.value" in path.read_text() for path in files)


@pytest.mark.parametrize("name", CONSTANTS)
def test_no_constant_is_of_a_row_of_a_table(name: str) -> None:
    assert not re.search(r"\bS\d+(-\d+)?\b", CONSTANTS[name].source + CONSTANTS[name].moves)
