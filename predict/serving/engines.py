"""Engines by name: the settings of configs/engines/NAME.yml, which a config's own replace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from predict.serving.server import EngineSettings
from sampling.errors import ConfigError
from sampling.files.faults import Fault, did_you_mean, shown
from sampling.files.places import CONFIGS
from sampling.files.schema import read

FOLDER = CONFIGS / "engines"
USUAL = "vllm-v1"


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineFile:
    """The content of an engine's file."""

    settings: EngineSettings
    """The engine's defaults."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The source of each setting."""


def engine_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yml")))


def engine_fault(name: object, path: str) -> Fault | None:
    """The fault of an engine's name at a key path; None for a known one."""
    known = engine_names()
    if name in known:
        return None
    near = did_you_mean(name, known) or f"; known: {', '.join(known)}"
    return Fault(path=path, problem=f"{shown(name)} is not known{near}")


@cache
def engine_settings(name: str) -> EngineSettings:
    """The defaults of an engine. ConfigError for an unknown name, and for a file with faults."""
    if unknown := engine_fault(name, "engine"):
        raise ConfigError(f"{unknown.path}: {unknown.problem}")
    return read(EngineFile, FOLDER / f"{name}.yml").settings
