"""Model and batch as every convention takes them, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from predict.huggingface.config_json import load_model
from predict.model.spec import ModelSpec
from sampling.files.faults import Fault, config_error, join, shown


def require_lengths(lengths: Sequence[int], *, name: str = "lengths") -> None:
    """ConfigError, with every fault, unless each sequence has one token or more."""
    faults = [
        Fault(
            path=f"{name}[{place}]",
            problem=f"{shown(length)} is not a number of tokens; give an integer from 1 to {MOST}",
        )
        for place, length in enumerate(lengths)
        if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= MOST
    ]
    if faults:
        raise config_error(faults, {"": "batch"})


def require_batch(lengths: Sequence[int]) -> None:
    """`require_lengths`, and ConfigError for a batch without a sequence."""
    if not lengths:
        raise config_error([Fault(path="lengths", problem="empty; give one length per sequence")], {"": "batch"})
    require_lengths(lengths)


def read_spec(config: Mapping[str, Any], lengths: Sequence[int], *, convention: str) -> ModelSpec:
    """The model's shape, for a convention that counts full, sliding and linear layers. Raises ConfigError for an unsound batch,
    wherever `load_model` does, and as `require_counted` does."""
    require_batch(lengths)
    spec = load_model(config)
    require_counted(spec, convention)
    return spec


def require_counted(spec: ModelSpec, convention: str) -> None:
    """ConfigError for a model with other mixers than full, sliding and linear attention."""
    others = sorted({kind.mixer for kind in spec.kinds()} - {"full", "sliding", "linear"})
    if others:
        problem = f"{shown(spec.name)} has {', '.join(others)} layers, which the {convention} convention does not count"
        raise config_error([Fault(path="model_type", problem=problem)], {"": "model"})


MOST = 2**40
"""Largest size that is read; far above any model's, and small enough that no count overflows."""


class ConfigKeys:
    """The keys of one section. A missing or unsound key adds a fault and reads as 1, so that one pass finds them all."""

    def __init__(self, values: Mapping[str, Any], *, section: str = "", faults: list[Fault] | None = None) -> None:
        self.values = values
        self.faults: list[Fault] = [] if faults is None else faults
        self._section = section

    def size(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """An integer from `least` to MOST; a key that is absent or null has the default, and without one is a fault."""
        value = self.values.get(key)
        value = default if value is None else value
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST:
            return value
        self._fault(
            key, "missing; add it" if value is None else f"{shown(value)} is not an integer from {least} to {MOST}"
        )
        return 1

    def layer_types(self) -> list[str]:
        """The kind of every layer; [] where the key is absent, null or empty."""
        value = self.values.get("layer_types") or []
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return value
        self._fault("layer_types", f"{shown(value)} is not a list of names; give one per layer")
        return []

    def entries(self, key: str) -> int:
        """Entries of a list; 0 where the key is absent or null."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, list):
            self._fault(key, f"{shown(value)} is not a list")
        return len(value) if isinstance(value, list) else 0

    def section(self, key: str) -> ConfigKeys:
        """The keys inside a section; a fault, and no keys, where it is missing."""
        value = self.values.get(key)
        if not isinstance(value, Mapping):
            self._fault(key, "missing; add the section" if value is None else f"{shown(value)} is not a mapping")
            return ConfigKeys({}, section=key)
        return ConfigKeys(value, section=join(self._section, key), faults=self.faults)

    def require_sound(self) -> None:
        """ConfigError with every fault, if there is one."""
        if self.faults:
            raise config_error(self.faults, {"": "model"})

    def _fault(self, key: str, problem: str) -> None:
        self.faults.append(Fault(path=join(self._section, key), problem=problem))
