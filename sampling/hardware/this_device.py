"""Identifies this machine: its hardware file, the facts that its rows are tied to, and the provenance of a session."""

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sampling.command_line import log
from sampling.errors import ConfigError, SamplesError
from sampling.files.faults import did_you_mean
from sampling.files.places import INSTALLED, PACKAGE, SHIPPED
from sampling.hardware.cluster import device_names, hardware_facts, hardware_named, how_to_describe, known_hardware
from sampling.number_text import plain, significant
from sampling.units import GIB

# The name of this machine's processor.

CPUINFO = Path("/proc/cpuinfo")


def cpu_name() -> str:
    """The processor's name by the kernel, with family and model, since a hypervisor may hide the name."""
    return _name_in(CPUINFO)


@cache
def _name_in(path: Path) -> str:
    if not path.is_file():
        return platform.processor() or platform.machine()
    facts: dict[str, str] = {}
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    name = facts.get("model name", platform.machine())
    return f"{name} family {facts.get('cpu family', '?')} model {facts.get('model', '?')}"


# The version of the code that takes rows: a commit of the clone, or a hash of the sources where no history travels with them.

NOT_SOURCE = ("__pycache__", INSTALLED.name)
"""Entries of the package's folder that its repository does not hold there."""


def code_version() -> str:
    """The commit of this clone, with a + where files differ from it; else `tree:` and the hash of the package's sources.

    The hash is git's: `git rev-parse COMMIT:sampling` begins with it for every commit with the same sources. It stands for
    an installation, whatever clone that lies in, and for a copy of the working tree without its .git.
    """
    return (_commit() if SHIPPED != INSTALLED else "") or f"tree:{tree_hash(PACKAGE)[:12]}"


def _commit() -> str:
    def git(*arguments: str) -> str:
        result = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, check=False)
        return result.stdout.strip()

    try:
        if not git("ls-files", "--", "__main__.py"):  # a copy inside another repository has no commit of its own
            return ""
        commit = git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except FileNotFoundError:
        return ""


def tree_hash(folder: Path) -> str:
    """The hash that git gives to a folder of plain files (git-scm.com/book/en/v2, Git Internals, tree objects)."""
    return _tree(folder).hex()


def _tree(folder: Path) -> bytes:
    kept = [path for path in folder.iterdir() if path.name not in NOT_SOURCE]
    entries = []
    for path in sorted(kept, key=lambda path: path.name + "/" * path.is_dir()):
        mode, digest = ("40000", _tree(path)) if path.is_dir() else ("100644", _git_hash("blob", path.read_bytes()))
        entries.append(f"{mode} {path.name}\0".encode() + digest)
    return _git_hash("tree", b"".join(entries))


def _git_hash(kind: str, content: bytes) -> bytes:
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).digest()


DRIVERS_SHARE = 0.03
"""Largest share of a device's memory by which two drivers may report it differently: each keeps about 1 % to itself. Kinds
of device that share a name differ by far more."""


def detect_hardware() -> str:
    """Name of the hardware file of this machine's GPU, or `cpu` without one; SamplesError for an unknown GPU."""
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    properties = torch.cuda.get_device_properties(0)
    name, entries = properties.name, _entries_by_name()
    memory_gib, multiprocessors = properties.total_memory / GIB, properties.multi_processor_count
    if found := entries.get(name):
        return found
    if found := _of_the_same_chip(name, memory_gib, multiprocessors):
        _report_taken(name, found)
        return found
    raise SamplesError(
        f"this machine has a {name!r}, which the catalogue does not describe{did_you_mean(name, entries) or '.'} "
        f"{_of_slice(name, memory_gib, multiprocessors)}{how_to_describe('NAME')}; its device_name is {name!r}. --hardware takes the name "
        "or the path"
    )


@cache
def _report_taken(name: str, entry: str) -> None:
    """Reports what was assumed of a device on stderr, once."""
    log(
        f"this machine's {name!r} is taken for {entry}: the same chip, with as much memory and as many multiprocessors; --hardware names "
        "another"
    )


MIG = re.compile(r" MIG [\w.]+$")


def _of_slice(name: str, memory_gib: float, multiprocessors: int) -> str:
    """The figures that the file of a MIG slice takes over from the device that it is part of, and their shares; '' for a whole device."""
    entry = hardware_named(MIG.sub("", name)) if MIG.search(name) else ""
    if not entry:
        return ""
    whole = hardware_facts(entry)
    return (
        f"It is a part of {entry} with {multiprocessors} of {whole.multiprocessors} multiprocessors and {significant(memory_gib)} of "
        f"{plain(whole.memory_gib)} GiB: peak_tflops are {significant(multiprocessors / whole.multiprocessors)} of those there, memory_gb_per_s and cache_mib "
        f"{significant(memory_gib / whole.memory_gib)}, and gpus_per_node is 1, since slices have no links. "
    )


def _of_the_same_chip(name: str, memory_gib: float, multiprocessors: int) -> str:
    """The hardware file of a board that goes by a number of its own, as `NVIDIA A100-PG509-200`: the one of its chip with as much memory
    and as many multiprocessors, '' without one. A PCIe card has other links and power than the module, so it needs a file of its own."""
    entry = "" if "pcie" in name.lower() else hardware_named(name, memory_gib)
    if not entry:
        return ""
    facts = hardware_facts(entry)
    alike = abs(facts.memory_gib - memory_gib) <= DRIVERS_SHARE * facts.memory_gib
    return entry if alike and facts.multiprocessors == multiprocessors else ""


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
    from importlib.metadata import distributions, version  # takes as long as rich to import

    import torch

    installed = {each.name for each in distributions()}
    libraries = installed & {"numpy", "pandas", "pyarrow"}
    versions: dict[str, str] = {name: version(name) for name in sorted(libraries)}
    versions |= {"python": platform.python_version(), "torch": torch.__version__}
    if torch.cuda.is_available():
        versions["cuda"] = str(torch.version.cuda or torch.version.hip)
    return {"versions": versions, "kernel": platform.release(), "commit": code_version()}


# The communication library of this machine and its settings: provenance of collectives.

PREFIXES = ("NCCL_", "RCCL_", "GLOO_", "UCX_", "FI_", "HSA_", "CUDA_DEVICE_MAX_CONNECTIONS")
"""Prefixes of environment variables that configure communication."""


def communication_facts(hardware: str) -> dict[str, Any]:
    """The library with its version, and the environment variables that configure it."""
    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith(PREFIXES)}
    return {"library": _library(hardware), "variables": variables}


def _library(hardware: str) -> str:
    if hardware_facts(hardware).kind == "cpu":
        return "gloo"
    import torch

    version = ".".join(str(part) for part in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]
    return f"{'rccl' if torch.version.hip else 'nccl'} {version}"
