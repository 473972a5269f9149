"""A Gpu, its links and the Cluster they form, from the hardware files (`configs/hardware/*.yml`)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any

from sampling.errors import ConfigError
from sampling.files.faults import did_you_mean, shown
from sampling.files.places import CONFIGS
from sampling.files.schema import Key, Text, read
from sampling.hardware.hardware_file import (
    BLOCK_SCALED_BYTES,
    DTYPE_BYTES,
    ELEMENT_BYTES,
    PEAK_OF,
    POWER_SHARES,
    USUAL_HOST,
    Activity,
    GbPerS,
    Hardware,
    Host,
    LatencyUs,
    Link,
    keys_in_words,
    read_hardware,
)
from sampling.number_text import as_given, plain

__all__ = [
    "BLOCK_SCALED_BYTES",
    "DTYPE_BYTES",
    "ELEMENT_BYTES",
    "Cluster",
    "Gpu",
    "Host",
    "Link",
    "device_names",
    "hardware_entry",
    "hardware_facts",
    "how_to_describe",
    "known_hardware",
    "load_cluster",
    "notes_on_trays",
]


INT8_AT_TWICE_BF16 = ("ampere", "ada", "hopper", "cdna3")
"""Architectures that multiply int8 at twice the rate of bf16: the data sheets of A100 (624), L40S (733), H100 (1,979) and MI300X (2,614.9
TOPS). Serving engines have no such kernels for later ones (vLLM, csrc/quantization/w8a8)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One rank's device. On a CPU this is the rank's share of the cores, and `threads` says how many.

    `peak_tflops` is dense matrix throughput by dtype, `memory_gb_per_s` what one rank can draw, `cache_mib` the last-level
    cache, `multiprocessors` SMs or compute units. `memory_gib` are GiB: makers write GB for them, and a driver keeps up to
    1 % to itself. `sources` cites each figure of the description, the links' and the usual GPUs a node included.
    """

    name: str
    kind: str
    architecture: str
    peak_tflops: Mapping[str, float]
    memory_gib: float
    memory_gb_per_s: float
    cache_mib: float
    multiprocessors: int
    efficiency: Mapping[str, float]
    """Share of the peak that each kind of work (gemm, attention, elementwise, wire) reaches where nothing was sampled."""
    sources: Mapping[str, str]
    threads: int = 0
    power_w: float | None = None
    """W of the board at its limit."""
    power_shares: Mapping[str, float] = field(default_factory=dict)
    """Shares of `power_w` by what the board does; POWER_SHARES for those that it lacks."""
    power_limit_w: float | None = None
    """W that the board is held to, where that is less than its limit."""
    fastest_tflops: Mapping[str, float] = field(default_factory=dict)
    """Peaks by dtype of the best device that the hardware file stands for, where they exceed `peak_tflops`."""

    host: Host | None = None
    """Its share of the host; None for the usual one."""
    sustained: Mapping[str, float] = field(default_factory=dict)
    """Time of GEMMs in a long run, where clocks fall, over that in a short measurement, by dtype."""

    @property
    def of_host(self) -> Host:
        """Its share of the host; of a CPU its own memory, which a copy reads and writes."""
        if self.kind != "cpu":
            return self.host or USUAL_HOST
        speed = self.memory_gb_per_s
        return Host(gb_per_s=speed / 2, memory_gb_per_s=speed, memory_gib=self.memory_gib * max(1, self.threads))

    def at_its_fastest(self) -> Gpu:
        """The same with the peaks that none of these devices exceeds, to check measurements against."""
        return replace(self, peak_tflops={**self.peak_tflops, **self.fastest_tflops})

    def peak_flops_per_us(self, dtype: str) -> float:
        """FLOPs per microsecond at the dense peak; ConfigError for a dtype that the device lacks."""
        if dtype == "int8" and "int8" not in self.peak_tflops and self.architecture in INT8_AT_TWICE_BF16:
            return 2 * self.peak_flops_per_us("bf16")
        peak = PEAK_OF.get(dtype, dtype)
        if peak not in self.peak_tflops:
            known = ", ".join(self.peak_tflops)
            raise ConfigError(f"precision: {self.name} has no {dtype} peak (it has {known}); use one of those")
        return self.peak_tflops[peak] * 1e6

    def bytes_per_us(self) -> float:
        return self.memory_gb_per_s * 1e3

    def watts(self, activity: Activity) -> float:
        """W of the board while it does that, at most `power_limit_w`; 0 where its power is not known."""
        wanted_w = self._wanted_w(activity)
        return min(self.power_limit_w or wanted_w, wanted_w)

    def clock_kept(self, activity: Activity) -> float:
        """Share of its clock that the board keeps under `power_limit_w` while it does that: the power of switching grows with the clock and
        the square of the voltage, which falls with the clock, so with its cube; the rest is the idle power.

        So the A100 PCIe, at 300 of the SXM module's 400 W, would keep 0.89 of its rate; its products reach 0.88 of it (SimuMax's)."""
        if self.power_limit_w is None or self.power_w is None or self._wanted_w(activity) <= self.power_limit_w:
            return 1.0
        idle_w = self._wanted_w("idle")
        return float(((self.power_limit_w - idle_w) / (self._wanted_w(activity) - idle_w)) ** (1 / 3))

    def _wanted_w(self, activity: Activity) -> float:
        return (self.power_w or 0.0) * self.power_shares.get(activity, POWER_SHARES[activity])


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """`nodes` × `gpus_per_node` ranks, and the profile under which their samples are kept."""

    gpu: Gpu
    intra_node: Link
    inter_node: Link
    nodes: int
    gpus_per_node: int
    profile: str
    node_size: int = 0
    """GPUs of a machine, where the ranks are on a part of them; 0 where they are on all."""
    network_share: float = 1.0
    """Share of the network cards that nodes of this hardware usually have, by the bandwidth between nodes as the cluster states it."""
    usual_node: int = 0
    """GPUs that nodes of this hardware usually have, all joined by the links in a node; 0 where that is not known."""

    @property
    def world_size(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def whole_node(self) -> int:
        """GPUs of a machine, with those that the ranks leave."""
        return self.node_size or self.gpus_per_node

    @property
    def threads(self) -> int:
        """CPU threads of one rank; 0 on a GPU."""
        return self.gpu.threads

    def link(self, ranks: int, ranks_per_node: int) -> Link:
        """The slowest link inside a group of `ranks`, `ranks_per_node` of them on each node."""
        return self.link_in_node(ranks) if ranks <= ranks_per_node else self.inter_node

    def link_in_node(self, ranks: int) -> Link:
        """The link of one of `ranks` in a node to the others: in a mesh, those that lead out of the group carry nothing."""
        link = self.intra_node
        if link.mesh != self.whole_node or not 1 < ranks < link.mesh:
            return link
        return replace(link, gb_per_s=link.gb_per_s * (ranks - 1) / (link.mesh - 1))

    def on_fewer(self, *, nodes: int, gpus_per_node: int) -> Cluster:
        """Other ranks on the same machines, whose GPUs are joined as they were."""
        of_whole = self.whole_node if gpus_per_node < self.whole_node else 0
        return replace(self, nodes=nodes, gpus_per_node=gpus_per_node, node_size=of_whole)


def load_cluster(
    *,
    hardware: str,
    nodes: int,
    gpus_per_node: int,
    profile: str,
    node_size: int | None = None,
    cores: int | None = None,
    power_limit_w: float | None = None,
    **links: float,
) -> Cluster:
    """Build a cluster of a hardware file's devices (see `hardware_facts`).

    `links` replaces its figures: `intra_node_gb_per_s`, `inter_node_latency_us` and so on.

    `node_size` is the number of GPUs of a machine, where the ranks are on a part of them.

    `cores` is the number of cores of a CPU machine (default: this machine's), which its ranks share evenly; `power_limit_w` what each
    board is held to.
    Raises ConfigError for unknown hardware, for more ranks than cores, for more on a machine than it has GPUs, and for a power limit that
    the board does not take.
    """
    if node_size is not None and node_size < gpus_per_node:
        raise ConfigError(
            f"cluster.node_size: {node_size} is less than the {gpus_per_node} GPUs per node that the run has; give the GPUs of a whole machine"
        )
    facts = hardware_facts(hardware)
    given = ("threads", "power_limit_w")
    gpu = Gpu(**{each.name: getattr(facts, each.name) for each in fields(Gpu) if each.name not in given})
    if power_limit_w is not None:
        gpu = replace(gpu, power_limit_w=_checked_limit(gpu, power_limit_w))
    if gpu.kind == "cpu":
        cores = cores or os.cpu_count() or 1
        if cores < gpus_per_node:
            raise ConfigError(
                f"cluster.gpus_per_node: {gpus_per_node} ranks need a core each, and {hardware} has {cores}; "
                f"set it to {cores} or less, or cluster.cores to {gpus_per_node} or more"
            )
        gpu = _share_of_cpu(gpu, cores, gpus_per_node)
    inter_node = _link(facts.inter_node, "inter_node", links)
    return Cluster(
        gpu=gpu,
        intra_node=_link(facts.intra_node, "intra_node", links),
        inter_node=inter_node,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        profile=profile,
        node_size=node_size or 0,
        network_share=min(1.0, inter_node.gb_per_s / facts.inter_node.gb_per_s),
        usual_node=facts.gpus_per_node,
    )


TRAY = 8
"""Most GPUs of a machine that share a board or a tray; more are joined across the trays of a rack."""


def notes_on_trays(cluster: Cluster) -> list[str]:
    """The note that nodes are given as single trays of a rack, whose GPUs the links in a node join: messages between them are then priced
    over the network."""
    usual, given = cluster.usual_node, cluster.whole_node
    if usual <= TRAY or given > TRAY or cluster.nodes == 1:
        return []
    ranks = cluster.world_size
    of_rack = max(size for size in range(1, min(usual, ranks) + 1) if ranks % size == 0)
    return [
        f"cluster: a rack of {cluster.gpu.name} is one node of {usual}, but messages between these {cluster.nodes:,} nodes of {given} are priced "
        f"over the network; for whole racks give nodes: {ranks // of_rack:,}, gpus_per_node: {of_rack}"
    ]


LEAST_POWER_LIMIT = 0.25
"""Share of the limit to which a board can be held: 100 of 400 W on A100, 200 of 700 on H100 (nvidia-smi -q -d POWER)."""


def _checked_limit(gpu: Gpu, limit_w: float) -> float:
    if gpu.power_w is None:
        raise ConfigError(f"cluster.power_limit_w: the hardware file of {gpu.name} states no power_w; add it")
    if not LEAST_POWER_LIMIT * gpu.power_w <= limit_w <= gpu.power_w:
        raise ConfigError(
            f"cluster.power_limit_w: {as_given(limit_w)} W is no limit of {gpu.name}; give {plain(LEAST_POWER_LIMIT * gpu.power_w)} to {plain(gpu.power_w)}"
        )
    return limit_w


def _link(link: Link, tier: str, given: Mapping[str, float]) -> Link:
    own: dict[str, Any] = {
        name.removeprefix(f"{tier}_"): figure for name, figure in given.items() if name.startswith(f"{tier}_")
    }
    return replace(link, **own)


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


@lru_cache(maxsize=64)
def hardware_entry(hardware: str) -> str:
    """The entry of the catalogue that goes by this name, whatever its case and hyphens: `H100` is `h100-sxm`.

    The name itself where it is the path of a file, or unknown.
    """
    if hardware in known_hardware() or _is_path(hardware):
        return hardware
    return _entries_by_name().get(_plain(hardware), hardware)


@cache
def _entries_by_name() -> Mapping[str, str]:
    entries: dict[str, str] = {}
    for entry in known_hardware():
        facts = _facts_of_entry(entry)
        entries |= {_plain(name): entry for name in (facts.name, *device_names(entry), *facts.aliases, entry)}
    return entries


def _names_near(text: str) -> list[str]:
    """The names that an unknown one is compared with: the entries that it begins, else all, and the short names that stand for one."""
    known = known_hardware()
    begun = [entry for entry in known if entry.startswith(text)]
    return begun or [*known, *(name for entry in known for name in _facts_of_entry(entry).aliases)]


def _plain(name: str) -> str:
    """Letters and digits alone, without the maker and its brand."""
    return re.sub(r"^(nvidia|amd)?(geforce|instinct)?", "", re.sub(r"[^a-z0-9]", "", name.lower()))


def hardware_named(text: str, memory_gb: float | None = None) -> str:
    """The entry of the device that a table or a driver spells in its own way, as `L40S-PCIE-48GB`, `h100_sxm` or `A100-PG509-200`; ''
    for one that the catalogue lacks, and for a MIG slice, which is no whole device.

    The longest beginning of the text that is a name counts; of a chip that comes with several memories, the entry nearest to `memory_gb`,
    or to the figure in the text.
    """
    words = re.findall(r"[a-z0-9.]+", text.lower())
    beginnings = ("".join(words[:count]) for count in range(len(words), 0, -1))
    entry = next((found for name in beginnings if (found := _entries_by_name().get(_plain(name)))), "")
    if not entry or "mig" in words:
        return ""
    in_text = re.search(r"(\d+) ?gb", text.lower())
    wanted_gb = memory_gb or (float(in_text[1]) if in_text else _facts_of_entry(entry).memory_gib)
    kin = [name for name in known_hardware() if _chip(name) == _chip(entry)]
    return min(kin, key=lambda name: (abs(_facts_of_entry(name).memory_gib - wanted_gb), name != entry))


def _chip(entry: str) -> tuple[str, str]:
    """The series of an entry's name, an RTX board's with its number, and the generation."""
    series = re.match(r"rtx-(pro-)?\w+|\w+", entry)
    return series[0] if series else entry, _facts_of_entry(entry).architecture


def hardware_facts(hardware: str) -> Hardware:
    """The facts in `configs/hardware/<hardware>.yml`, or in the YAML file that `hardware` is the path of; names as `hardware_entry`.

    Raises ConfigError for an unknown name, with the nearest and how to describe a device, and with every fault of a file.
    """
    if _is_path(hardware):
        return _facts_in(Path(os.path.abspath(hardware)))  # noqa: PTH100  (resolve() reads the disk, and fails on odd names)
    return _facts_of_entry(hardware_entry(hardware))


def hardware_beside(hardware: str, file: Path) -> str:
    """The hardware that `file` names: where it is a path, the one relative to the file."""
    return os.path.normpath(file.parent / hardware) if _is_path(hardware) else hardware


def _is_path(hardware: str) -> bool:
    return re.fullmatch(r"(?is).+\.ya?ml", hardware) is not None


_facts_in = cache(read_hardware)


@cache
def _facts_of_entry(hardware: str) -> Hardware:
    known = known_hardware()
    if hardware not in known:
        raise ConfigError(
            f"hardware {shown(hardware)} is not in the catalogue (known: {', '.join(known)})"
            f"{did_you_mean(hardware.lower(), _names_near(hardware.lower())) or '.'} {how_to_describe(hardware)}"
        )
    return read_hardware(CONFIGS / "hardware" / f"{hardware}.yml")


def device_names(hardware: str) -> tuple[str, ...]:
    """The names that torch.cuda.get_device_name may return for the device; none for a CPU."""
    names = hardware_facts(hardware).device_name
    return (names,) if isinstance(names, str) else names


def how_to_describe(hardware: str) -> str:
    """A sentence on how to describe hardware that has no file yet."""
    stem = hardware if re.fullmatch(r"[a-z0-9-]+", hardware) else "NAME"
    return (
        f"To describe it, write a .yml file and give its path in place of the name, or in a clone configs/hardware/{stem}.yml, "
        f"with the keys {keys_in_words()} (a source for each figure), as in {CONFIGS / 'hardware' / 'h100-sxm.yml'}"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The ranks at hand."""

    nodes: int
    gpus_per_node: int

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus_per_node


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
    """GPUs of a machine where the run has only a part of them, such as 4 of 8; default: gpus_per_node."""
    profile: Text | None = None
    """Name under data/samples of this cluster's measurements; default: this-machine on a CPU, else the hardware's name."""
    intra_node_gb_per_s: GbPerS | None = None
    """GB/s one way per GPU inside a node; default: the hardware's."""
    intra_node_latency_us: LatencyUs | None = None
    """µs of a hop inside a node, on a CPU of the wake-up of a thread, of which a message takes several; default: the hardware's."""
    inter_node_gb_per_s: GbPerS | None = None
    """GB/s one way per GPU between nodes; default: the hardware's."""
    inter_node_latency_us: LatencyUs | None = None
    """µs of a hop between nodes, on a CPU of the network alone; default: the hardware's."""
    cores: int | None = None
    """CPU cores of a machine; default: those of the sampled one."""
    power_limit_w: Annotated[float | None, Key(minimum=1, maximum=1e5, meaning="W of a board")] = None
    """W that each board is held to, as by `nvidia-smi -pl`, at the cost of its clock; default: the hardware's own limit."""
    calibration: Text | None = None
    """Path of the terms that `predict calibrate` fitted to measured runs of this cluster; default: none are used."""

    @property
    def machine(self) -> Machine:
        return Machine(nodes=self.nodes, gpus_per_node=self.gpus_per_node)


def read_cluster_file(path: Path) -> ClusterFile:
    """Read a cluster's file; ConfigError lists every fault."""
    cluster = read(ClusterFile, path, fix="see configs/clusters/this-machine.yml")
    return replace(cluster, hardware=hardware_beside(cluster.hardware, path))
