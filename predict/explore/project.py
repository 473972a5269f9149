"""The files that a page may name: those of the project, which are the config's folder, the working directory and what is shipped."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sampling.files.faults import shown
from sampling.files.places import CONFIGS

ENDINGS = (".json", ".yml", ".yaml", ".csv")
"""Suffixes of files that a config may name."""
OF_LENGTHS = "file:"
"""Start of a distribution of lengths that a file holds, before its path."""


def foreign_files(settings: Mapping[str, Any], config: Path) -> dict[str, str]:
    """Key path → the problem of a value that is the path of a file outside the project."""
    roots = [each.resolve() for each in (Path.cwd(), config.parent, CONFIGS)]
    found = {}
    for path, value in settings.items():
        for text in _texts(value):
            if _is_path(text) and not any(_inside(base / text, roots) for base in (Path.cwd(), config.parent)):
                found[path] = f"{shown(text)} lies outside the project; name a shipped one, or a file below {roots[0]}"
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.removeprefix(OF_LENGTHS)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _is_path(text: str) -> bool:
    return os.sep in text or ".." in text or text.lower().endswith(ENDINGS)


def _inside(path: Path, roots: list[Path]) -> bool:
    """Whether a path, its links followed, lies below one of the roots."""
    try:
        place = path.resolve()
    except OSError:
        return False
    return any(place.is_relative_to(root) for root in roots)
