"""The JSON Schema of a run config, from the same keys that check it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from predict.config.sections import BATCH, CLUSTER, EXECUTION, PLAN, PRECISION
from predict.model.families import FAMILIES
from sampling.files.keys import Key


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12). Aliases and rules between keys are beyond it; loading a config checks them."""
    cluster = _section(CLUSTER, "the machines")
    model = {
        "type": "object",
        "description": "the keys of a Hugging Face config.json",
        "properties": {"model_type": {"enum": list(FAMILIES)}},
        "required": ["model_type"],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "steptime run config",
        "type": "object",
        "properties": {
            "model": {"anyOf": [_file("a Hugging Face config.json"), model]},
            "cluster": {"anyOf": [_file("a YAML file with these keys"), cluster]},
            "plan": _section(PLAN, "how the run is spread over the ranks"),
            "batch": _section(BATCH, "how a step's sequences are cut"),
            "precision": _key(PRECISION),
            "execution": _section(EXECUTION, "how a framework runs the plan"),
        },
        "required": ["model", "cluster", "batch", "precision"],
        "additionalProperties": False,
    }


def _file(what: str) -> dict[str, Any]:
    return {"type": "string", "description": f"path of {what}, relative to the run config"}


def _section(keys: Sequence[Key], description: str) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "properties": {key.name: _key(key) for key in keys},
        "required": [key.name for key in keys if key.required],
        "additionalProperties": False,
    }


def _key(key: Key) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": key.doc}
    if key.choices and key.pattern:
        schema["anyOf"] = [{"enum": list(key.choices())}, {"type": "string", "pattern": f"^{key.pattern}$"}]
    elif key.choices:
        schema["enum"] = list(key.choices())
    elif key.kind == "integer":
        schema |= {"type": "integer", "minimum": key.minimum, "maximum": min(key.maximum, key.modelled_to)}
    else:
        schema["type"] = key.kind
    if key.default is not None:
        schema["default"] = key.default
    if key.nullable:
        schema["type"] = [schema["type"], "null"]
    return schema
