"""The file of a cluster, `configs/clusters/*.yml`: run configs name it, and a sampling session is started on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from sampling.files.keys import Key, Text
from sampling.files.schema import read
from sampling.hardware.cluster import hardware_beside, known_hardware
from sampling.hardware.hardware_file import GbPerS, LatencyUs
from sampling.hardware.machine import Machine


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterFile:
    """The machines. Predictions alone use `cores` and the links' figures: a session measures what is there."""

    hardware: Annotated[str, Key(choices=known_hardware, pattern=".+")]
    """Entry of configs/hardware, an alias such as H100, or the path of a .yml file like those."""
    nodes: int
    """Machines."""
    gpus_per_node: int
    """GPUs per machine; on a CPU the ranks that share its cores."""
    node_size: int | None = None
    """GPUs of a machine of which the run has a part, such as 4 of 8; default: gpus_per_node."""
    profile: Text | None = None
    """Name under data/samples of this cluster's measurements; default: this-machine on a CPU, else the hardware's name."""
    intra_node_gb_per_s: GbPerS | None = None
    """GB/s one way per GPU inside a node; default: the hardware's."""
    intra_node_latency_us: LatencyUs | None = None
    """µs of a hop inside a node; default: the hardware's."""
    inter_node_gb_per_s: GbPerS | None = None
    """GB/s one way per GPU between nodes; default: the hardware's."""
    inter_node_latency_us: LatencyUs | None = None
    """µs of a hop between nodes; default: the hardware's."""
    cores: int | None = None
    """CPU cores of a machine; default: those of the sampled one."""
    calibration: Text | None = None
    """Path of the terms that `predict calibrate` fitted to measured runs of this cluster; default: none are used."""

    @property
    def machine(self) -> Machine:
        return Machine(nodes=self.nodes, gpus_per_node=self.gpus_per_node)


def read_cluster_file(path: Path) -> ClusterFile:
    """Read a cluster's file; ConfigError lists every fault."""
    cluster = read(ClusterFile, path, fix="see configs/clusters/this-machine.yml")
    return replace(cluster, hardware=hardware_beside(cluster.hardware, path))
