"""Identifies this machine: its hardware file, the facts that its rows are tied to, and the provenance of a session."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from sampling.errors import ConfigError, SamplesError
from sampling.files.faults import did_you_mean
from sampling.files.places import INSTALLED, SHIPPED
from sampling.hardware.cluster import device_names, hardware_facts, how_to_describe, known_hardware
from sampling.hardware.cpu_name import cpu_name


def detect_hardware() -> str:
    """Name of the hardware file of this machine's GPU, or `cpu` without one; SamplesError for an unknown GPU."""
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    name = torch.cuda.get_device_name()
    entries = {known: entry for entry in known_hardware() for known in device_names(entry)}
    if name in entries:
        return entries[name]
    raise SamplesError(
        f"this machine has a {name!r}, which the catalogue does not describe{did_you_mean(name, entries) or '.'} "
        f"{how_to_describe('NAME')}; its device_name is {name!r}. --hardware takes the name or the path"
    )


def most_ranks(hardware: str, *, named_by: str = "--hardware") -> int:
    """Number of ranks that this machine can run: one per GPU, or one per core.

    ConfigError for a GPU that is not there, which begins with `named_by`, the option or the file and key that names it.
    """
    if hardware_facts(hardware).kind == "cpu":
        return os.cpu_count() or 1
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(
            f"{named_by}: {hardware!r} is a GPU, and torch finds none on this machine; sample on one that has it, with a "
            "torch build for it, or omit it to sample this machine's CPU"
        )
    return torch.cuda.device_count()


def ranks_of_machine(hardware: str) -> list[int]:
    """Numbers of ranks per node to sample with: one alone, and all GPUs, or two shares of a CPU."""
    most = most_ranks(hardware)
    return sorted({1, min(2, most) if hardware_facts(hardware).kind == "cpu" else most})


def identify(hardware: str) -> dict[str, Any]:
    """The facts that must stay the same for all rows of a profile."""
    if hardware_facts(hardware).kind == "cpu":
        return {"name": cpu_name(), "cores": os.cpu_count() or 1, "machine": platform.machine()}
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "count": torch.cuda.device_count(),
        "memory_gib": round(properties.total_memory / 2**30, 1),
    }


def provenance() -> dict[str, Any]:
    """Versions of software and of this code in a sampling session."""
    import torch

    versions = {name: importlib.metadata.version(name) for name in ("numpy", "pandas", "pyarrow")}
    versions |= {"python": platform.python_version(), "torch": torch.__version__}
    if torch.cuda.is_available():
        versions["cuda"] = str(torch.version.cuda or torch.version.hip)
    return {"versions": versions, "kernel": platform.release(), "commit": _commit()}


def _commit() -> str:
    """The commit of this clone, with a + where files differ from it; '' for an installation, whatever clone it lies in."""
    if SHIPPED == INSTALLED:
        return ""
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        result = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=False)
        return result.stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if commit and git("status", "--porcelain", "--untracked-files=no") else "")
    except FileNotFoundError:
        return ""
