"""A run config that was made rather than read from a file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from predict.config.overrides import parse_overrides

PLAIN = re.compile(r"[A-Za-z/.][\w./+-]*")
"""Text that YAML reads as itself without quotes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """The content of a run config's file. Paths in it count from the working directory."""

    name: str
    """The name of the run, as a file's stem would give it."""
    content: Mapping[str, Any]
    """Section → its keys, or one value."""
    sources: Mapping[str, str]
    """Key path → the option that its value came from, for messages."""
    set_paths: frozenset[str] = frozenset()
    """Key paths in it, or whole sections, that settings gave."""

    def with_settings(self, texts: Sequence[str]) -> Document:
        """The same with settings such as `plan.tp=2` in their sections; those inside a model that is named by its file have no
        place, and are left out."""
        content = dict(self.content)
        for setting in parse_overrides(texts)[0]:
            section = content.get(setting.section, {})
            if not setting.key:
                content[setting.section] = setting.value
            elif isinstance(section, Mapping):
                content[setting.section] = {**section, setting.key: setting.value}
        return replace(self, content=content)

    def as_yaml(self) -> str:
        """The config as a YAML file, one section per line."""
        return "".join(f"{section}: {_written(value)}\n" for section, value in self.content.items())


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, str) and PLAIN.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)
