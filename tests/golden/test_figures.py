"""Our figures are those of figures.json, which need not have what was added since; after a change on purpose, `python -m tests.golden.figures` writes them anew."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.golden.figures import PATH, SECTIONS


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path} / {key}")
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from leaves(item, f"{path}[{place}]")
    else:
        yield path, float(value)


@pytest.mark.parametrize("section", SECTIONS)
def test_figures_have_not_moved(section: str) -> None:
    golden = dict(leaves(json.loads(PATH.read_text())[section]))
    now = dict(leaves(SECTIONS[section]()))
    assert now.keys() >= golden.keys()
    assert {path: now[path] for path in golden} == pytest.approx(golden, rel=1e-9)
