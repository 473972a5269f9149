"""Provenance of a profile's rows: manifest.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from sampling.errors import SamplesError
from sampling.files.disk import write_atomically
from sampling.files.schema import read

FILE = "manifest.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """Provenance of a profile. `device` identifies the machine; each session adds its versions and settings."""

    HEADER: ClassVar[Mapping[str, Any]] = {"version": 1}

    profile: str
    hardware: str
    device: dict[str, Any]
    sessions: list[dict[str, Any]] = field(default_factory=list)


def read_manifest(directory: Path) -> Manifest:
    """Read `manifest.json`; SamplesError names the directory and the command that makes it."""
    path = directory / FILE
    command = f"run `make sample PROFILE={directory.name}`"
    if not path.is_file():
        raise SamplesError(f"{directory}: no samples; {command}")
    return read(Manifest, path, error=SamplesError, fix=f"restore the file, or set the directory aside and {command}")


def write_manifest(directory: Path, manifest: Manifest) -> None:
    content = {**Manifest.HEADER, **asdict(manifest)}
    write_atomically(directory / FILE, json.dumps(content, indent=1).encode())
