"""The name of this machine's processor."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

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
