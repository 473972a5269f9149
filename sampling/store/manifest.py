"""Provenance of a profile's rows: manifest.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sampling.errors import SamplesError
from sampling.files.disk import write_atomically

MANIFEST_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """Provenance of a profile. `device` identifies the machine; each session adds its versions and settings."""

    profile: str
    hardware: str
    device: dict[str, Any]
    sessions: list[dict[str, Any]] = field(default_factory=list)
    version: int = MANIFEST_VERSION


def read_manifest(directory: Path) -> Manifest:
    """Read `manifest.json`; SamplesError names the directory and the command that makes it."""
    path = directory / "manifest.json"
    try:
        return _manifest(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise SamplesError(f"{directory}: no samples; run `make sample PROFILE={directory.name}`") from None
    except (OSError, ValueError, TypeError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise SamplesError(
            f"{path}: not a manifest of version {MANIFEST_VERSION} ({error}); restore the file, or set the directory "
            f"aside and run `make sample PROFILE={directory.name}`"
        ) from None


def _manifest(content: Any) -> Manifest:
    """The manifest; TypeError or ValueError for content of another shape or version."""
    manifest = Manifest(**content)
    if manifest.version != MANIFEST_VERSION:
        raise ValueError(f"its version is {manifest.version}")
    if not isinstance(manifest.device, dict) or not isinstance(manifest.sessions, list):
        raise TypeError("device must be a mapping and sessions a list")
    return manifest


def write_manifest(directory: Path, manifest: Manifest) -> None:
    write_atomically(directory / "manifest.json", json.dumps(asdict(manifest), indent=1).encode())
