"""The shipped models, configs/models, by the names that people give them: `llama3-8b`, `Llama-3.1-8B`, `meta-llama/Llama-2-7b-hf`."""

from __future__ import annotations

import re
from pathlib import Path

from sampling.files.places import CONFIGS

FOLDER = CONFIGS / "models"
AROUND = re.compile(r"^(.*/)?(meta-)?|(-hf|-instruct|-chat|-it|-base|-fp8|-nvfp4)+$")
"""Endings that repositories of weights add to the name of a model, whose sizes stay the same; several may follow each other."""


def shipped_models() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def shipped_model(name: str) -> Path | None:
    """The file of the model that goes by this name, whatever its case and hyphens."""
    known, plain = {_plain(stem): stem for stem in shipped_models()}, _plain(name)
    stem = known.get(plain) or known.get(plain.replace("llama3.1", "llama3"))
    return FOLDER / f"{stem}.json" if stem else None


def _plain(name: str) -> str:
    """Letters and digits alone, and the point of a version."""
    return re.sub(r"[^a-z0-9.]", "", AROUND.sub("", name.lower().replace("_", "-")))
