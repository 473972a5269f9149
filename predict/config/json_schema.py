"""The JSON Schema of a run config, from the declarations that check it."""

from collections.abc import Mapping, Sequence
from typing import Any

from predict.config.draft import DECLARED_BY, PLACEHOLDERS, PRECISION, SECTIONS, UNKNOWN
from predict.huggingface.families import FAMILIES
from predict.run.training_run import TrainingRun
from sampling.files.faults import join
from sampling.files.schema import Key, field_docs, keys_of


def model_schema() -> dict[str, Any]:
    """The schema of a model: a name, a path, or its keys."""
    keys = {
        "type": "object",
        "description": "the keys of a Hugging Face config.json",
        "properties": {key: {"enum": list(FAMILIES)} for key in ("model_type", "_class_name")},
        "anyOf": [{"required": [name]} for name in ("model_type", "_class_name")],
    }
    return {"anyOf": [_file("model", "a Hugging Face config.json"), keys]}


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12). Aliases and rules between keys are beyond it; loading a config checks them."""
    properties = {
        "model": model_schema(),
        "cluster": {"anyOf": [_file("cluster", "a YAML file with these keys"), _section("cluster")]},
        "plan": _section("plan"),
        "batch": _section("batch"),
        "precision": key_schema(PRECISION, field_docs(TrainingRun)["precision"]),
        **{name: _section(name) for name in ("execution", "adapters", "offload", "tuning", "vision")},
    }
    return document_schema("steptime run config", properties, ("model", "cluster", "batch", "precision"))


def document_schema(title: str, properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """The schema of a file with these keys at its top."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "type": "object",
        "properties": dict(properties),
        "required": [*required],
        "additionalProperties": False,
    }


def section_schema(declared_by: type, description: str) -> dict[str, Any]:
    """The schema of a section whose keys are the fields of a dataclass, sections within it included."""
    return _of_keys(keys_of(declared_by), declared_by, description)


def _of_keys(keys: Sequence[Key], declared_by: type, description: str, section: str = "") -> dict[str, Any]:
    docs = field_docs(declared_by)
    return {
        "type": "object",
        "description": description,
        "properties": {key.name: _or_unknown(join(section, key.name), key_schema(key, docs[key.name])) for key in keys},
        "required": [key.name for key in keys if key.required],
        "additionalProperties": False,
    }


def _file(section: str, what: str) -> dict[str, Any]:
    return {
        "type": "string",
        "description": f"name of a shipped {section}, or path of {what}, relative to the run config",
    }


def _section(name: str) -> dict[str, Any]:
    return _of_keys(SECTIONS[name], DECLARED_BY[name], field_docs(TrainingRun)[name], section=name)


def _or_unknown(path: str, schema: dict[str, Any]) -> dict[str, Any]:
    if path not in PLACEHOLDERS:
        return schema
    outer: dict[str, Any] = {name: schema.pop(name) for name in ("description", "default") if name in schema}
    return {**outer, "anyOf": [schema, {"const": UNKNOWN}]}


def key_schema(key: Key, doc: str) -> dict[str, Any]:
    """The schema of one key; `doc` says what it means."""
    if key.of:
        return section_schema(key.of, doc)
    schema: dict[str, Any] = {"description": doc}
    if key.choices and key.pattern:
        schema["anyOf"] = [{"enum": list(key.choices())}, {"type": "string", "pattern": f"^({key.pattern})$"}]
        schema["anyOf"] += [{"type": "number"}] if key.takes_number else []
    elif key.choices:
        schema["enum"] = list(key.choices())
    elif key.kind == "integer":
        schema |= {"type": "integer", "minimum": key.lowest, "maximum": key.maximum}
    elif key.kind == "number":
        schema |= {"type": "number", "exclusiveMinimum" if key.excludes_lowest else "minimum": key.lowest}
        schema |= {"maximum": key.maximum}
    elif key.kind == "list" and key.element:
        schema |= {"type": "array", "items": key_schema(key.element, "")}
    else:
        schema |= {"type": key.kind} | ({"minLength": key.minimum} if key.minimum else {})
    if key.pattern and not key.choices:
        schema["pattern"] = f"^({key.pattern})$"
    if key.default is not None:
        schema["default"] = list(key.default) if key.kind == "list" else key.default
    if key.nullable:
        schema["type"] = [schema["type"], "null"]
    return schema
