"""Shipped models and clusters, which a config may name in place of the path of a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from predict.model.shipped import shipped_model, shipped_models
from sampling.files.faults import did_you_mean, nearest, shown
from sampling.files.places import CONFIGS

CLUSTERS = CONFIGS / "clusters"
PATH = re.compile(r"(?is).*\.(json|ya?ml)")


def shipped_file(section: str, name: str) -> Path | None:
    """The file of the shipped model or cluster that goes by `name`; None for paths and unknown names."""
    if PATH.fullmatch(name):
        return None
    if section == "model":
        return shipped_model(name)
    return CLUSTERS / f"{name}.yml" if name in shipped_names(section) else None


def shipped_names(section: str) -> Sequence[str]:
    return shipped_models() if section == "model" else sorted(path.stem for path in CLUSTERS.glob("*.yml"))


def as_read(section: str, name: str, path: Path) -> str:
    """The way in which the text at a section was read, in front of what is wrong with the file: as a path, or as a name that none goes by."""
    if PATH.fullmatch(name):
        return f"{shown(name)} (that is {path})"
    names = shipped_names(section)
    nearest = did_you_mean(name.lower(), names) or f" (known: {', '.join(names)})."
    return f"{shown(name)} is not the name of a shipped {section}{nearest} As a path, {shown(str(path))}"


def shipped_instead(section: str, name: str, path: Path) -> str:
    """The shipped name that a path of no file may stand for, such as a copied config's; nothing where the file is there."""
    near = [] if path.exists() or not PATH.fullmatch(name) else nearest(Path(name).stem, shipped_names(section))
    return f", or give a shipped {section} by its name: {' or '.join(near)}" if near else ""
