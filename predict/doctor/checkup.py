"""The checkup: installation, machine, folders and profiles in one value."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from predict.doctor.installation import Library, libraries, program_version, python_version
from predict.doctor.profiles import Profile, all_profiles
from predict.prices.whose_rows import HOW_TO_SAMPLE
from predict.serialise import version_of
from sampling.errors import UserError
from sampling.files.places import CONFIGS, SHIPPED_DATA, own_data
from sampling.hardware.cpu_name import cpu_name
from sampling.hardware.this_device import detect_hardware, identify
from sampling.store.profiles import OWN, SHIPPED, profile_in_use

FEW = 0.1
"""Share of the shipped rows of the same CPU below which own rows are few: most operators then have none or a handful."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkup:
    """The state of everything that predictions on this machine rest on. `folders` are named by what lies in them."""

    version: str
    python: str
    libraries: tuple[Library, ...]
    cpu: str
    cores: int
    gpu: str
    """The GPUs that torch finds, or why none is known."""
    folders: dict[str, str]
    profiles: tuple[Profile, ...]
    runs_here_use: str
    """The profile that runs on this machine are answered from."""

    @property
    def faults(self) -> list[str]:
        """Everything that has to be mended, each with the command that does."""
        return list(self._faults())

    def _faults(self) -> Iterator[str]:
        lacking = [library.name for library in self.libraries if not library.extra and not library.version]
        if lacking:
            yield f"{', '.join(lacking)}: not installed, and predicting needs it; run `pip install steptime`, or `make setup`"
        yield from (f"{profile.name}: {profile.fault}" for profile in self.profiles if profile.fault)

    @property
    def advice(self) -> str:
        """Advice that would make predictions on this machine better; '' if nothing is known to."""
        by_name = {profile.name: profile for profile in self.profiles}
        if self.runs_here_use != OWN:
            own = [
                each.name for each in self.profiles if each.kind == "own" and each.fitted and each.device == self.cpu
            ]
            named = f", or name {' or '.join(own)}, of this CPU too, with --set cluster.profile=NAME" if own else ""
            return (
                f"Runs here are answered from {self.runs_here_use}: no profile {OWN} is fitted; {HOW_TO_SAMPLE}{named}"
            )
        own_rows, shipped = by_name[OWN], by_name.get(SHIPPED)
        if own_rows.usable is None or shipped is None or not shipped.usable or shipped.device != self.cpu:
            return ""
        if own_rows.usable >= FEW * shipped.usable:
            return ""
        return (
            f"Runs here are answered from the {own_rows.usable:,} usable rows of {OWN}; {SHIPPED} has {shipped.usable:,} of the same CPU: "
            f"name it with --set cluster.profile={SHIPPED}, or sample on: {HOW_TO_SAMPLE}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "version": version_of("doctor"),
            "program": self.version,
            **_without_version(asdict(self)),
            "advice": self.advice,
            "faults": self.faults,
        }


def _without_version(content: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key != "version"}


def checkup() -> Checkup:
    """Look at everything; the GPU by torch, where that is installed."""
    return Checkup(
        version=program_version(),
        python=python_version(),
        libraries=libraries(),
        cpu=cpu_name(),
        cores=os.cpu_count() or 1,
        gpu=_gpu(),
        folders={
            "configs": str(CONFIGS),
            "shipped data": str(SHIPPED_DATA),
            "own data": str(own_data()),
        },
        profiles=all_profiles(),
        runs_here_use=profile_in_use(OWN),
    )


def _gpu() -> str:
    if importlib.util.find_spec("torch") is None:
        return "not looked for: torch is not installed"
    try:
        hardware = detect_hardware()
        if hardware == "cpu":
            return "none that torch finds"
        facts = identify(hardware)
    except UserError as error:
        return str(error)
    return f"{facts['count']} × {facts['name']}, {facts['memory_gib']:g} GiB ({hardware})"
