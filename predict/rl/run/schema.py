"""The JSON Schema of an RL config, from the declarations that check it."""

from __future__ import annotations

from typing import Any

from predict.config.json_schema import document_schema, json_schema, section_schema
from predict.rl.run.section import RlSection

MEANING = (
    "Everything of a step of reinforcement learning that the training run does not say; it takes the place of `batch`."
)


def rl_schema() -> dict[str, Any]:
    """JSON Schema (2020-12). verl's names and rules between keys are beyond it; loading a config checks them."""
    of_run = json_schema()["properties"]
    properties = {name: schema for name, schema in of_run.items() if name != "batch"}
    return document_schema(
        "steptime RL config",
        {**properties, "rl": section_schema(RlSection, MEANING)},
        ("model", "cluster", "precision", "rl"),
    )
