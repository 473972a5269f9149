"""Identifies this machine: its hardware file, the facts that its rows are tied to, and the provenance of a session."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from typing import Any

from sampling.errors import ConfigError, SamplesError
from sampling.files.faults import did_you_mean
from sampling.hardware.cluster import device_names, hardware_facts, how_to_describe, known_hardware
from sampling.hardware.code_version import code_version
from sampling.hardware.cpu_name import cpu_name
from sampling.units import GIB

DRIVERS_SHARE = 0.03
"""Largest share of a device's memory by which two drivers may report it differently: each keeps about 1 % to itself. Kinds
of device that share a name differ by far more."""


def detect_hardware() -> str:
    """Name of the hardware file of this machine's GPU, or `cpu` without one; SamplesError for an unknown GPU."""
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    name = torch.cuda.get_device_name()
    entries = _entries_by_name()
    if name in entries:
        return entries[name]
    raise SamplesError(
        f"this machine has a {name!r}, which the catalogue does not describe{did_you_mean(name, entries) or '.'} "
        f"{how_to_describe('NAME')}; its device_name is {name!r}. --hardware takes the name or the path"
    )


def entry_of(device: str) -> str:
    """The hardware file of a device by the name that torch gives it; '' for one that the catalogue lacks."""
    return _entries_by_name().get(device, "")


def _entries_by_name() -> dict[str, str]:
    return {name: entry for entry in known_hardware() for name in device_names(entry)}


def usable_cores() -> int:
    """CPU cores that this process may run on: all, or those of its affinity mask (taskset)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def most_ranks(hardware: str, *, named_by: str = "--hardware") -> int:
    """Number of ranks that this machine can run: one per GPU, or one per core.

    ConfigError for a GPU that is not there, which begins with `named_by`, the option or the file and key that names it.
    """
    if hardware_facts(hardware).kind == "cpu":
        return usable_cores()
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
        return {"name": cpu_name(), "cores": usable_cores(), "machine": platform.machine()}
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "count": torch.cuda.device_count(),
        "memory_gib": round(properties.total_memory / GIB, 1),
    }


def same_device(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two results of `identify` are of the same kind of device, whatever part of its memory the driver keeps."""
    gib, other_gib = one.get("memory_gib", 0.0), other.get("memory_gib", 0.0)
    alike = abs(gib - other_gib) <= DRIVERS_SHARE * max(gib, other_gib)
    return alike and {**one, "memory_gib": gib} == {**other, "memory_gib": gib}


def one_of(device: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of one device, whatever number of them its machine has."""
    return {name: value for name, value in device.items() if name != "count"}


def provenance() -> dict[str, Any]:
    """Versions of software and of this code in a sampling session."""
    import torch

    installed = {each.name for each in importlib.metadata.distributions()}
    libraries = installed & {"numpy", "pandas", "pyarrow"}
    versions: dict[str, str] = {name: importlib.metadata.version(name) for name in sorted(libraries)}
    versions |= {"python": platform.python_version(), "torch": torch.__version__}
    if torch.cuda.is_available():
        versions["cuda"] = str(torch.version.cuda or torch.version.hip)
    return {"versions": versions, "kernel": platform.release(), "commit": code_version()}
