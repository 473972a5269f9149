"""What each framework sets: `configs/frameworks/NAME.yml`, whose settings a run's own `execution` replaces."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from predict.run.execution import WHOLE_LAYERS
from sampling.files.documents import read_yaml
from sampling.files.faults import config_error
from sampling.hardware.cluster import CONFIGS

FOLDER = CONFIGS / "frameworks"
ON_GPUS = "megatron-core"


def framework_names() -> tuple[str, ...]:
    return (WHOLE_LAYERS, *sorted(path.stem for path in FOLDER.glob("*.yml")))


def framework_spread(name: str) -> float:
    """Half-width of log time by which published runs of a framework differ beyond those that the prior is of."""
    return float(_document(name).get("spread", 0.0)) if name != WHOLE_LAYERS else 0.0


def memory_profile(name: str) -> str:
    """The memory profile of a framework, by its name in `predict.memory.profiles`; whole layers are plain torch."""
    return str(_document(name)["memory"]) if name != WHOLE_LAYERS else "eager"


@cache
def framework_settings(name: str, architecture: str = "") -> Mapping[str, Any]:
    """The keys of `execution` that a framework sets, on GPUs of an architecture; nothing for whole layers.

    ConfigError for a file that cannot be read.
    """
    if name == WHOLE_LAYERS:
        return {}
    document = _document(name)
    return {**document["execution"], **document.get("by_architecture", {}).get(architecture, {})}


@cache
def _document(name: str) -> Mapping[str, Any]:
    document, faults = read_yaml(FOLDER / f"{name}.yml")
    if document is None or faults:
        raise config_error(faults, {"": str(FOLDER / f"{name}.yml")})
    return document
