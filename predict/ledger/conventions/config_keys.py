"""Reader of a `config.json`'s keys as another tool reads them, with every fault gathered for one error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sampling.files.faults import Fault, config_error, join, shown

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
