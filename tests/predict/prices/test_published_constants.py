"""Constants read off published runs: within their bounds, used, and stated in words that a reader outside of the tables knows."""

import re
from importlib import import_module
from typing import Any

import pytest
import yaml

from predict.prices.published_constants import CONSTANTS
from sampling.files.places import PACKAGE

ROOT = PACKAGE.parent
MOST_GLOBAL = 7


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_is_within_its_bounds_and_used(name: str) -> None:
    constant = CONSTANTS[name]
    assert constant.low <= constant.value <= constant.high
    if constant.place:
        assert _held(constant.place) == constant.value
        return
    assert any(f'CONSTANTS["{name}"].value' in path.read_text() for path in (ROOT / "predict").rglob("*.py"))


def _held(place: str) -> Any:
    """The value in the file that holds it, by its keys or its name there."""
    file, keys = place.split(": ")
    if file.endswith(".py"):
        return getattr(import_module(file.removesuffix(".py").replace("/", ".")), keys)
    value = yaml.safe_load((ROOT / file).read_text())
    for key in keys.split("."):
        value = value[key]
    return value


def test_the_words_of_constants_name_no_source_or_row_by_its_code() -> None:
    assert not [name for name, one in CONSTANTS.items() if re.search(r"\bS\d+(-\d+)?\b", one.source + one.moves)]


def test_few_constants_move_the_medians_of_all_frameworks() -> None:
    assert 0 < sum(constant.scope == "global" for constant in CONSTANTS.values()) <= MOST_GLOBAL
