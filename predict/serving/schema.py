"""The JSON Schema of a serving config, from the declarations that check it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from predict.config.json_schema import document_schema, model_schema, section_schema
from predict.serving.engines import USUAL, engine_names
from predict.serving.scheduler.traffic import Load
from predict.serving.server import EngineSettings, Placement
from sampling.hardware.cluster import known_hardware

SECTIONS: Mapping[str, tuple[type, str]] = {
    "placement": (Placement, "How the model is spread over its GPUs."),
    "engine": (EngineSettings, "An engine of configs/engines by its `name`, and settings in place of its own."),
    "load": (Load, "The requests."),
}
"""Section → the dataclass whose fields are its keys, and its meaning."""
ENGINE_NAME = "An engine of configs/engines."


def serving_schema() -> dict[str, Any]:
    """JSON Schema (2020-12). Rules between keys are beyond it; loading a config checks them."""
    sections = {name: section_schema(*declared) for name, declared in SECTIONS.items()}
    engine = sections["engine"]
    name = {"description": ENGINE_NAME, "enum": list(engine_names()), "default": USUAL}
    sections["engine"] = {**engine, "properties": {"name": name, **engine["properties"]}, "required": []}
    hardware = {"description": "a device of configs/hardware, or the path of a file like those", "type": "string"}
    properties = {
        "model": model_schema(),
        "hardware": {**hardware, "examples": known_hardware()},
        "profile": {"description": "name under data/samples of the device's measurements", "type": "string"},
        **sections,
    }
    return document_schema("steptime serving config", properties, ("model", "hardware"))
