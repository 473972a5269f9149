"""The schemas of configs say what a key holds by default, between which limits, and within which section."""

from dataclasses import asdict, fields

from predict.config.json_schema import json_schema
from predict.rl.config import rl_schema
from predict.run.plan import Plan


def test_the_schema_says_defaults_limits_and_names_of_the_plan() -> None:
    plan = json_schema()["properties"]["plan"]["properties"]
    assert set(plan) == {field.name for field in fields(Plan)}
    assert {name: key["default"] for name, key in plan.items()} == asdict(Plan())
    assert (plan["zero"]["minimum"], plan["zero"]["maximum"], plan["tp"]["minimum"]) == (0, 3, 1)
    assert {"1f1b", "best"} <= set(plan["schedule"]["anyOf"][0]["enum"])
    assert all(key["description"] for key in plan.values())


def test_a_schema_describes_sections_within_a_section() -> None:
    rl = rl_schema()["properties"]["rl"]
    assert "batch" not in rl["properties"]
    rollout = rl["properties"]["rollout"]["properties"]
    assert rollout["memory_share"]["maximum"] == 1
    assert rl["properties"]["offload"]["items"]["enum"] == ["parameters", "optimizer", "reference"]
    assert rl["properties"]["prompt"]["pattern"]
