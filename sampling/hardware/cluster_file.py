"""The cluster that is to be sampled, from the same YAML file that run configs name."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from sampling.errors import ConfigError
from sampling.hardware.machine import Machine

KINDS = {"hardware": str, "nodes": int, "gpus_per_node": int, "profile": str, "cores": int}
OPTIONAL = ("cores",)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterFile:
    """configs/clusters/*.yml. `cores` is read by predictions alone: sampling counts those that are there."""

    hardware: str
    nodes: int
    gpus_per_node: int
    profile: str
    cores: int | None = None

    @property
    def machine(self) -> Machine:
        return Machine(nodes=self.nodes, gpus_per_node=self.gpus_per_node)


def read_cluster_file(path: Path) -> ClusterFile:
    """ConfigError names the file and every fault in it."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); see configs/clusters/this-machine.yml") from None
    if not isinstance(content, dict):
        raise ConfigError(
            f"{path}: holds no keys; it needs {', '.join(KINDS)} as configs/clusters/this-machine.yml has"
        )
    faults = [_unknown(key) for key in content if key not in KINDS]
    faults += [f"{key}: missing" for key in KINDS if key not in content and key not in OPTIONAL]
    faults += [
        f"{key}: {content[key]!r} is no {'name' if kind is str else 'whole number from 1'}"
        for key, kind in KINDS.items()
        if key in content and not (content[key] is None and key in OPTIONAL) and not _is(content[key], kind)
    ]
    if faults:
        raise ConfigError(f"{path}: " + "; ".join(faults))
    return ClusterFile(**content)


def _is(value: object, kind: type) -> bool:
    return type(value) is kind and (value > 0 if isinstance(value, int) else bool(value))


def _unknown(key: object) -> str:
    nearest = difflib.get_close_matches(str(key), KINDS, n=1)
    return f"{key}: unknown key" + (f", did you mean {nearest[0]}?" if nearest else "")
