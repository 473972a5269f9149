"""Settings of public files of other tools, restated in the YAML files of `real_files`: what each file sets, its comments and what changes
nothing mostly left out. Each is read as its entry says, or refused for the reason that it gives; the expected values are counted by hand
from the tool's own rules.

Only settings are restated, never text. Where one differs from the file, `source` says so; what is made up here says that too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True, kw_only=True, slots=True)
class RealFile:
    tool: str
    source: str
    """Repository, path, and the commit's first letters."""
    name: str
    """Name of the file, whose ending decides how it is read."""
    text: str
    settings: tuple[str, ...] = ()
    beside: Mapping[str, str] = field(default_factory=dict)
    """Other files of the run: name → text."""
    accept: tuple[str, ...] = ()
    reads: Mapping[str, Any] = field(default_factory=dict)
    """Key path → value of the config."""
    notes: tuple[str, ...] = ()
    """Patterns of which each is found in a note on what was read."""
    unsaid: tuple[str, ...] = ()
    """Patterns that no note has."""
    refused: tuple[str, ...] = ()
    """Patterns that the refusal holds."""


def _entries() -> Iterator[dict[str, Any]]:
    """The entries of all files; one with `each` stands for several, with a text at {} and what comes of it."""
    for path in sorted(Path(__file__).with_suffix("").glob("*.yml")):
        for entry in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader):
            each = entry.pop("each", {})
            yield from ({**entry, "text": entry["text"].replace("{}", text), **found} for text, found in each.items())
            if not each:
                yield entry


REAL_FILES = tuple(
    RealFile(**{key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()})
    for entry in _entries()
)
