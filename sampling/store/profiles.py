"""Places of profiles: samples/<profile> of the user's data or of the shipped, imported/samples/<profile> for published measurements;
which profile is this machine's own, and which one stands in for it."""

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from sampling.errors import ConfigError, SamplesError
from sampling.files.disk import naming_the_disk, write_atomically
from sampling.files.places import SHIPPED_DATA, own_data, sampling_command
from sampling.files.schema import read
from sampling.hardware.cluster import Cluster, hardware_entry, hardware_facts, load_cluster

OWN = "this-machine"
"""The profile of the machine that asks: made by `make sample` and `make train-regressors`, never in the repository."""
SHIPPED = "epyc-2-cores"
"""The profile in the repository, of the machine that its manifest names."""
IMPORTED = "imported"
"""Folder of the user's data for other people's measurements and the regressors trained on them; never in the repository."""

REFITTED = "refitted"
"""Folder of a clone's data for shipped rows that the user fits again; never in the repository."""


def default_profile(hardware: str) -> str:
    """The profile of a cluster that names none: this machine's own on a CPU, else the name of the hardware, which need not
    have samples."""
    if hardware_facts(hardware).kind == "cpu":
        return OWN
    return re.sub(r"[^\w.-]+", "-", Path(hardware_entry(hardware)).stem).lstrip("-.")


def samples_directory(profile: str, data: Path | None = None) -> Path:
    """The folder of a profile's samples, by default in the user's data; ConfigError for a name that would lie outside."""
    if not re.fullmatch(r"[\w.-]*\w[\w.-]*", profile):
        raise ConfigError(f"profile: {profile!r} is not the name of a folder; use letters, digits, dots and dashes")
    return (data or own_data()) / "samples" / profile


def home_of(profile: str, data: Path | None = None) -> Path:
    """The folder whose samples/ or regressors/ holds the profile: `data` (by default the user's), else its `imported`, else the shipped.

    `data` itself where none does.
    """
    data = data or own_data()
    return next((home for home, place in _places(data, profile) if os.path.isdir(place)), data)  # noqa: PTH112 - asked for every plan, where pathlib takes twice as long


@lru_cache(maxsize=64)
def _places(data: Path, profile: str) -> tuple[tuple[Path, Path], ...]:
    """The homes in which a profile may lie, each once, with each of the folders that it would have there."""
    homes = dict.fromkeys((data, data / IMPORTED, SHIPPED_DATA))
    return tuple((home, home / kind / profile) for home in homes for kind in ("samples", "regressors"))


def is_shipped(profile: str) -> bool:
    """Whether the profile's samples are those of the project, and not rows of the user's."""
    return home_of(profile) == SHIPPED_DATA and (profile == SHIPPED or own_data() != SHIPPED_DATA)


def copy_shipped(profile: str) -> Path:
    """Copy the profile's shipped samples, and the errors of its validated steps, to the user's data, or where that is the shipped folder
    to its git-ignored `refitted`; returns that folder."""
    home = own_data() if own_data() != SHIPPED_DATA else SHIPPED_DATA / REFITTED
    copy = samples_directory(profile, home)
    with naming_the_disk(copy):
        shutil.copytree(
            samples_directory(profile, SHIPPED_DATA), copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*")
        )
        for steps in (SHIPPED_DATA / "published").glob(f"{profile}-steps.json"):
            (home / "published").mkdir(exist_ok=True)
            shutil.copy(steps, home / "published")
    return home


def known_profiles() -> list[str]:
    """The names of all profiles with samples or time models, the user's own, imported and shipped."""
    data = own_data()
    folders = [home / kind for home in (data, data / IMPORTED, SHIPPED_DATA) for kind in ("samples", "regressors")]
    return sorted({path.name for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_dir()})


def is_fitted(profile: str, data: Path | None = None) -> bool:
    """Whether the profile has time models."""
    return (home_of(profile, data) / "regressors" / profile).is_dir()


def profile_in_use(profile: str, data: Path | None = None) -> str:
    """The profile itself, or the shipped one in place of this machine's own until that is sampled and fitted."""
    return SHIPPED if profile == OWN and not is_fitted(OWN, data) else profile


MANIFEST = "manifest.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """Provenance of a profile. `device` identifies the machine; each session adds its versions and settings."""

    HEADER: ClassVar[Mapping[str, Any]] = {"version": 1}

    profile: str
    hardware: str
    device: dict[str, Any]
    sessions: list[dict[str, Any]] = field(default_factory=list)

    def cluster(self, threads: int, ranks: int) -> Cluster:
        """The node on which rows were taken while so many ranks ran, of so many CPU threads each (0 on a GPU)."""
        return load_cluster(
            hardware=self.hardware,
            nodes=1,
            gpus_per_node=ranks,
            profile=self.profile,
            cores=max(1, threads) * ranks,
        )


def read_manifest(directory: Path) -> Manifest:
    """Read `manifest.json`; SamplesError names the directory and the command that makes it."""
    path = directory / MANIFEST
    command = f"run {sampling_command(directory.name)}"
    if not path.is_file():
        raise SamplesError(f"{directory}: no samples; {command}")
    return read(Manifest, path, error=SamplesError, fix=f"restore the file, or set the directory aside and {command}")


def write_manifest(directory: Path, manifest: Manifest) -> None:
    content = {**Manifest.HEADER, **asdict(manifest)}
    write_atomically(directory / MANIFEST, json.dumps(content, indent=1).encode())
