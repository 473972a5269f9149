"""Facts of a machine, read from `configs/hardware/*.yml`: a Gpu, its Links, and the Cluster they make."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from sampling.errors import ConfigError

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
DTYPE_BYTES: Mapping[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One rank's device. On a CPU this is the rank's share of the cores, and `threads` says how many.

    `peak_tflops` is dense matrix throughput by dtype; `memory_gb_per_s` what one rank can draw. `source` cites both.
    """

    name: str
    kind: str
    peak_tflops: Mapping[str, float]
    memory_gib: float
    memory_gb_per_s: float
    cache_mib: float
    efficiency: Mapping[str, float]
    """Share of the peak that work of a kind reaches when nothing was sampled: gemm, attention, elementwise, wire."""
    source: str
    threads: int = 0
    fastest_tflops: Mapping[str, float] = field(default_factory=dict)
    """By dtype, what the best of the devices that an entry stands for reaches, where that is more than `peak_tflops`."""

    def at_its_fastest(self) -> Gpu:
        """The same with the peaks that none of these devices exceeds, to judge measurements by."""
        return replace(self, peak_tflops={**self.peak_tflops, **self.fastest_tflops})

    def peak_flops_per_us(self, dtype: str) -> float:
        """FLOPs a microsecond at the dense peak; a dtype the device lacks is a `ConfigError`."""
        if dtype not in self.peak_tflops:
            known = ", ".join(self.peak_tflops)
            raise ConfigError(f"precision: {self.name} has no {dtype} peak (it has {known}); use one of those")
        return self.peak_tflops[dtype] * 1e6

    def bytes_per_us(self) -> float:
        return self.memory_gb_per_s * 1e3


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One rank's way to another: latency of a message and bandwidth in one direction."""

    latency_us: float
    gb_per_s: float

    def bytes_per_us(self) -> float:
        return self.gb_per_s * 1e3


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """`nodes` × `gpus_per_node` ranks, and the profile under which their samples are kept."""

    gpu: Gpu
    intra_node: Link
    inter_node: Link
    nodes: int
    gpus_per_node: int
    profile: str

    @property
    def world_size(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def threads(self) -> int:
        """CPU threads of one rank; 0 on a GPU."""
        return self.gpu.threads

    def link(self, ranks: int, ranks_per_node: int) -> Link:
        """The slowest link that a group of `ranks`, `ranks_per_node` of them a node, crosses."""
        return self.intra_node if ranks <= ranks_per_node else self.inter_node


def load_cluster(*, hardware: str, nodes: int, gpus_per_node: int, profile: str, cores: int | None = None) -> Cluster:
    """Build a cluster from `configs/hardware/<hardware>.yml`.

    `cores` is the core count of a CPU machine (this machine's where it is not given); its ranks share them evenly.
    Raises ConfigError for unknown hardware and for more ranks than cores.
    """
    facts = hardware_facts(hardware)
    gpu = Gpu(
        name=facts["name"],
        kind=facts["kind"],
        peak_tflops=facts["peak_tflops"],
        memory_gib=facts["memory_gib"],
        memory_gb_per_s=facts["memory_gb_per_s"],
        cache_mib=facts["cache_mib"],
        efficiency=facts["efficiency"],
        source=facts["source"],
        fastest_tflops=facts.get("fastest_tflops", {}),
    )
    if gpu.kind == "cpu":
        cores = cores or os.cpu_count() or 1
        if cores < gpus_per_node:
            raise ConfigError(
                f"cluster.gpus_per_node: {gpus_per_node} ranks cannot share {cores} cores of {hardware}, each needs one; "
                f"set it to {cores} or less, or cluster.cores to {gpus_per_node} or more"
            )
        gpu = _share_of_cpu(gpu, cores, gpus_per_node)
    return Cluster(
        gpu=gpu,
        intra_node=Link(**facts["intra_node"]),
        inter_node=Link(**facts["inter_node"]),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        profile=profile,
    )


def _share_of_cpu(per_core: Gpu, cores: int, ranks: int) -> Gpu:
    threads = cores // ranks
    peaks, fastest = (
        {dtype: tflops * threads for dtype, tflops in of_core.items()}
        for of_core in (per_core.peak_tflops, per_core.fastest_tflops)
    )
    memory_gb_per_s = per_core.memory_gb_per_s * threads
    return replace(
        per_core, peak_tflops=peaks, fastest_tflops=fastest, memory_gb_per_s=memory_gb_per_s, threads=threads
    )


def known_hardware() -> list[str]:
    return sorted(path.stem for path in (CONFIGS / "hardware").glob("*.yml"))


@cache
def hardware_facts(name: str) -> dict[str, Any]:
    """The parsed catalogue entry `configs/hardware/<name>.yml`; ConfigError names the nearest if there is none."""
    import yaml

    path = CONFIGS / "hardware" / f"{name}.yml"
    if not path.is_file():
        known = known_hardware()
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ConfigError(
            f"cluster.hardware: {name!r} is not in the catalogue; {hint}known: {', '.join(known)}. "
            f"To add it, describe it in configs/hardware/{name}.yml (see configs/hardware/cpu.yml for the keys)"
        )
    facts: dict[str, Any] = yaml.safe_load(path.read_text())
    return facts
