"""The site of a session: the device, the ranks that are there, and the profile that its rows are kept under."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampling.arguments import Parser
from sampling.errors import ConfigError, naming
from sampling.files.places import OWN_DATA_IN_WORDS
from sampling.hardware.cluster import ClusterFile, Machine, hardware_entry, hardware_facts, read_cluster_file
from sampling.hardware.this_device import detect_hardware, identify, most_ranks, ranks_of_machine
from sampling.number_text import as_given
from sampling.store.profiles import OWN, default_profile

if TYPE_CHECKING:
    from sampling.ranks.worker import World


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """`machine` has all ranks that there are; `rank_counts` are the numbers of busy ranks per node to sample with."""

    profile: str
    hardware: str
    machine: Machine
    rank_counts: Sequence[int]


def find_site(options: argparse.Namespace, world: World | None) -> Site:
    """The site of the options and the cluster file; ConfigError if the ranks that are there differ from it."""
    cluster = _read_cluster(options)
    hardware = _hardware(options, cluster)
    on_gpu = hardware_facts(hardware).kind != "cpu"
    from_file = cluster and not options.hardware
    most = most_ranks(hardware, named_by=f"--cluster: {options.cluster}: hardware" if from_file else "--hardware")
    if from_file and on_gpu and (found := detect_hardware()) != hardware:
        raise ConfigError(
            f"{options.cluster}: hardware: {hardware!r}, and this machine has {found!r}; name that, or insist with "
            f"--hardware {hardware}"
        )
    if world:
        machine, rank_counts = world.machine, sorted({1, world.machine.gpus_per_node})
    elif cluster:
        machine = Machine(nodes=1, gpus_per_node=cluster.gpus_per_node)
        rank_counts = sorted({1, cluster.gpus_per_node})
    else:
        machine, rank_counts = Machine(nodes=1, gpus_per_node=most), ranks_of_machine(hardware)
    if cluster and cluster.machine != machine:
        raise ConfigError(
            f"{options.cluster}: has {cluster.nodes} nodes of {cluster.gpus_per_node}, and this session {machine.nodes} of "
            f"{machine.gpus_per_node}; run `torchrun --nnodes {cluster.nodes} --nproc-per-node {cluster.gpus_per_node} … -m "
            f"sampling …` on every node, or `srun --nodes {cluster.nodes} --ntasks-per-node {cluster.gpus_per_node} python -m "
            "sampling …`"
        )
    if machine.gpus_per_node > most and not world:
        raise ConfigError(
            f"{options.cluster}: gpus_per_node: {machine.gpus_per_node} ranks, and this machine can run {most}; set it to "
            f"{most} or less"
        )
    profile = options.profile or (cluster.profile or default_profile(hardware) if cluster else OWN)
    return Site(profile=profile, hardware=hardware, machine=machine, rank_counts=rank_counts)


def device_of_node(options: argparse.Namespace) -> dict[str, Any]:
    """The facts that identify this node's device."""
    return identify(_hardware(options, _read_cluster(options)))


def _read_cluster(options: argparse.Namespace) -> ClusterFile | None:
    return read_cluster_file(options.cluster) if options.cluster else None


def _hardware(options: argparse.Namespace, cluster: ClusterFile | None) -> str:
    if not options.hardware:
        return hardware_entry(cluster.hardware if cluster else detect_hardware())
    with naming("--hardware"):
        return hardware_entry(options.hardware)


def session_parser(program: str, description: str, *, models: int) -> argparse.ArgumentParser:
    """A parser of the options; `models` is the default of --models."""
    parser = Parser(prog=program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add(
        "--cluster",
        type=Path,
        metavar="FILE",
        help="hardware, nodes, GPUs per node and profile: a file of configs/clusters",
    )
    add("--profile", help="name the rows are kept under (default: the one of --cluster, or this-machine)")
    add("--budget", type=float, default=300.0, metavar="SECONDS", help="wall-clock budget (default: %(default)g)")
    add("--calls", type=Path, metavar="FILE", help="calls to time first, from `predict calls`")
    add(
        "--visits",
        type=int,
        metavar="N",
        help="time the calls of --calls at N moments and nothing else (default: at 3 moments, then other shapes)",
    )
    add("--hardware", metavar="NAME", help="entry of configs/hardware (default: the one of --cluster, or detected)")
    add("--ranges", type=Path, metavar="FILE", help="ranges to draw shapes from (default: configs/sampling/<kind>.yml)")
    add("--models", type=int, default=models, help="models to draw shapes from (default: %(default)s)")
    add("--fresh", action="store_true", help="start the profile anew; old rows are set aside")
    add("--data", type=Path, metavar="DIR", help=f"folder of samples/ (default: {OWN_DATA_IN_WORDS})")
    return parser


def check_options(options: argparse.Namespace) -> None:
    """ConfigError for a number that is out of range."""
    if not 0 < options.budget < math.inf:
        raise ConfigError(f"--budget: {as_given(options.budget)} is not a positive, finite number of seconds")
    if options.models < 0:
        raise ConfigError(f"--models: {options.models} is not a number of models; give 0 or more")
    if options.visits is not None and (options.visits < 1 or not options.calls):
        raise ConfigError(f"--visits: {options.visits} moments; give 1 or more, and the calls by --calls FILE")
