"""The schemas of RL and serving configs, held against the configs that ship."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from predict.cli import main
from sampling.files.documents import read_yaml
from sampling.files.places import CONFIGS


@pytest.mark.parametrize(("option", "folder"), [("--rl", "rl"), ("--serving", "serving")])
def test_a_schema_knows_every_key_of_the_shipped_configs(
    option: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["schema", option])
    schema = json.loads(capsys.readouterr().out)
    paths = sorted((CONFIGS / folder).rglob("*.yml"))
    assert paths
    for path in paths:
        assert _unknown(_read(path), schema) == []
        assert set(schema["required"]) <= set(_read(path))


def test_a_schema_describes_sections_within_a_section(capsys: pytest.CaptureFixture[str]) -> None:
    main(["schema", "--rl"])
    rl = json.loads(capsys.readouterr().out)["properties"]["rl"]
    assert "batch" not in rl["properties"]
    rollout = rl["properties"]["rollout"]["properties"]
    assert rollout["memory_share"]["maximum"] == 1
    assert rl["properties"]["offload"]["items"]["enum"] == ["parameters", "optimizer", "reference"]
    assert rl["properties"]["prompt"]["pattern"]


def _read(path: Path) -> dict[Any, Any]:
    document, faults = read_yaml(path)
    assert document is not None and not faults
    return document


def _unknown(values: dict[Any, Any], schema: dict[str, Any]) -> list[str]:
    """Keys that the schema has not, of sections that are mappings in both."""
    found = []
    for name, value in values.items():
        known = schema["properties"].get(name)
        if known is None:
            found.append(name)
        elif isinstance(value, dict) and "properties" in known:
            found += [f"{name}.{each}" for each in _unknown(value, known)]
    return found
