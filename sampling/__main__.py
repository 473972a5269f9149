"""Sample this machine or cluster: `python -m sampling --profile this-machine --budget 300 [--calls FILE]`."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampling.errors import ConfigError, UserError

if TYPE_CHECKING:
    from sampling.choosing.session_plan import CollectiveGrid
    from sampling.choosing.shapes import DrawnModel, Ranges
    from sampling.hardware.cluster_file import ClusterFile
    from sampling.hardware.machine import Machine
    from sampling.ranks.world import World
    from sampling.session.session import Take, Wanted

VISITS_OF_NAMED = 3
"""Moments at which a call that a named run needs is timed: a shared machine drifts by 5–15 % over minutes."""

DESCRIPTION = """\
Time operators and collectives on this machine and keep the rows under data/samples/<profile>/.

First the calls that named runs need (--calls, written by `predict calls RUN.yml`), then shapes that fill the space.
What is already there is not timed again; an interrupted session goes on where it was.

On one machine the command starts its own ranks. On several, run the same command on every rank, by torchrun or srun:

  torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 -m sampling --cluster FILE
  srun --ntasks-per-node 8 python -m sampling --cluster FILE        (configs/clusters/slurm.sbatch is a whole job)

`python -m sampling import --help` tells how to bring in measurements that others published.
"""


def parser() -> argparse.ArgumentParser:
    commands = argparse.ArgumentParser(
        prog="python -m sampling", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands.add_argument(
        "--cluster", type=Path, metavar="FILE", help="hardware, nodes, GPUs a node and profile, from configs/clusters"
    )
    commands.add_argument(
        "--profile", help="name the rows are kept under (default: that of --cluster, or this-machine)"
    )
    commands.add_argument(
        "--budget", type=float, default=300.0, metavar="SECONDS", help="wall-clock budget (default: %(default)g)"
    )
    commands.add_argument("--calls", type=Path, metavar="FILE", help="calls to time first, from `predict calls`")
    commands.add_argument(
        "--hardware", metavar="NAME", help="entry of configs/hardware (default: that of --cluster, or detected)"
    )
    commands.add_argument(
        "--ranges", type=Path, metavar="FILE", help="box to draw shapes from (default: configs/sampling/<kind>.yml)"
    )
    commands.add_argument("--models", type=int, default=64, help="models to draw shapes from (default: %(default)s)")
    commands.add_argument("--fresh", action="store_true", help="start the profile anew; old rows are set aside")
    commands.add_argument("--data", type=Path, help="where samples/ lies (default: this project's data/)")
    return commands


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return told(lambda: run(options, None))


def main_of_process() -> int:
    """As `main`, for a process that torchrun or srun may have started as one rank of many."""
    from sampling.ranks.rank import become_rank, rank_from

    options = parser().parse_args()
    try:
        become_rank(sys.argv[1:])
        rank = rank_from(os.environ)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if rank is None:
        return told(lambda: run(options, None))
    from sampling.ranks.world import as_rank

    return as_rank(rank, lambda world: told(lambda: run(options, world)), lambda: device_of(options))


def told(work: Callable[[], int]) -> int:
    """The exit code of `work`, with what went wrong on stderr."""
    try:
        return work()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted: rows timed so far are kept; the same command goes on from here", file=sys.stderr)
        return 130


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Where a session takes place: `machine` has all ranks that there are, `shares` says how many a node to sample with."""

    profile: str
    hardware: str
    machine: Machine
    shares: Sequence[int]


def run(options: argparse.Namespace, world: World | None, take: Take | None = None) -> int:
    """A whole session; `take` times the plan in its own order, `sampling.session.session.sample` by default."""
    from sampling.choosing.session_plan import memory_of_a_rank, plan_for
    from sampling.choosing.shapes import draw_models
    from sampling.hardware.cluster import CONFIGS, hardware_facts
    from sampling.hardware.communication_library import communication_facts
    from sampling.session.progress import progress_display
    from sampling.session.session import open_profile, sample, sole_session
    from sampling.store.profiles import DATA, samples_directory

    if not 0 < options.budget < math.inf:
        raise ConfigError(f"--budget: {options.budget:g} is not a positive, finite number of seconds")
    if options.models < 0:
        raise ConfigError(f"--models: {options.models} is not a number of models; give 0 or more")
    site = find_site(options, world)
    kind = "cpu" if hardware_facts(site.hardware).kind == "cpu" else "gpu"
    ranges, grid = read_ranges(options.ranges or CONFIGS / "sampling" / f"{kind}.yml")
    models = draw_models(ranges, options.models)
    named = list(named_calls(options.calls, site)) if options.calls else []
    plan = plan_for(
        site.machine,
        [*named, *space(models, ranges, grid, site)],
        lambda ranks: memory_of_a_rank(site.hardware, ranks),
    )
    if plan.misplaced:
        print(f"{plan.misplaced} calls of groups that this machine cannot form are left out", file=sys.stderr)
    directory = samples_directory(site.profile, options.data or DATA)
    with sole_session(directory):
        network = communication_facts(site.hardware) | (world.provenance() if world else {})
        manifest = open_profile(
            directory, profile=site.profile, hardware=site.hardware, fresh=options.fresh, network=network
        )
        print(f"{site.profile}: {manifest.device['name']}, at most {options.budget:.0f} s", file=sys.stderr)
        start = time.monotonic()
        with progress_display() as tell:
            outcome = (take or sample)(
                directory, manifest, plan.wanted, budget_s=options.budget, tell=tell, run_job=world
            )
    too_large = f"{plan.too_large} collectives too large for the memory left out; " if plan.too_large else ""
    print(
        f"kept {outcome.kept} rows in {time.monotonic() - start:.0f} s ({outcome.quarantined} quarantined) in {directory}; "
        f"{too_large}{outcome.not_reached} more wanted: run again to go on"
    )
    return 0


def find_site(options: argparse.Namespace, world: World | None) -> Site:
    """What the options and the cluster file say, held against the ranks that are there."""
    from sampling.hardware.cluster import hardware_facts
    from sampling.hardware.machine import Machine
    from sampling.hardware.this_device import detect_hardware, most_ranks, ranks_of_machine

    cluster = read_cluster(options)
    hardware = options.hardware or (cluster.hardware if cluster else detect_hardware())
    profile = options.profile or (cluster.profile if cluster else "this-machine")
    most = most_ranks(hardware)
    on_gpu = hardware_facts(hardware).kind != "cpu"
    if cluster and not options.hardware and on_gpu and (found := detect_hardware()) != hardware:
        raise ConfigError(
            f"{options.cluster}: hardware: {hardware!r}, and this machine has {found!r}; name that, or insist with "
            f"--hardware {hardware}"
        )
    if world:
        machine, shares = world.machine, sorted({1, world.machine.gpus_per_node})
    elif cluster:
        machine, shares = Machine(nodes=1, gpus_per_node=cluster.gpus_per_node), sorted({1, cluster.gpus_per_node})
    else:
        machine, shares = Machine(nodes=1, gpus_per_node=most), ranks_of_machine(hardware)
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
    return Site(profile=profile, hardware=hardware, machine=machine, shares=shares)


def read_cluster(options: argparse.Namespace) -> ClusterFile | None:
    from sampling.hardware.cluster_file import read_cluster_file

    return read_cluster_file(options.cluster) if options.cluster else None


def device_of(options: argparse.Namespace) -> dict[str, Any]:
    from sampling.hardware.this_device import detect_hardware, identify

    cluster = read_cluster(options)
    return identify(options.hardware or (cluster.hardware if cluster else detect_hardware()))


def named_calls(path: Path, site: Site) -> Iterator[Wanted]:
    """The calls that runs need, by how many ranks a node they run with. ConfigError if a node here has not so many."""
    from sampling.choosing.requests import read_calls_file
    from sampling.hardware.cluster import hardware_facts
    from sampling.session.session import Wanted

    most = site.machine.gpus_per_node
    for ranks, requests in sorted(read_calls_file(path, hardware_facts(site.hardware).name).items()):
        if ranks > most:
            raise ConfigError(
                f"{path}: needs {ranks} ranks on one node, and this machine can run {most}; sample on a machine as large as "
                "the runs' nodes, or write the calls of runs with fewer cluster.gpus_per_node"
            )
        yield Wanted(busy_ranks=ranks, requests=requests, visits=VISITS_OF_NAMED)


def space(models: Sequence[DrawnModel], ranges: Ranges, grid: CollectiveGrid | None, site: Site) -> Iterator[Wanted]:
    """Shapes that fill the space: of operators and cells on a node, then of collectives on all that the site offers."""
    from sampling.call import Request
    from sampling.choosing.requests import space_filling
    from sampling.choosing.session_plan import collective_grid
    from sampling.session.session import Wanted

    for ranks in site.shares:
        yield Wanted(busy_ranks=ranks, requests=list(space_filling(models, ranks)), visits=1, fills=True)
    machine = replace(site.machine, gpus_per_node=site.shares[-1])
    if grid and machine.ranks > 1:
        calls = collective_grid(machine, ranges.message_bytes, grid)
        requests = [Request(call=call, phases=call.PHASES) for call in calls]
        yield Wanted(busy_ranks=machine.gpus_per_node, requests=requests, visits=1, nodes=machine.nodes, fills=True)


def read_ranges(path: Path) -> tuple[Ranges, CollectiveGrid | None]:
    """The box of shapes, and the collectives if it has any; ConfigError names the file and what is wrong with it."""
    import yaml

    from sampling.choosing.session_plan import CollectiveGrid
    from sampling.choosing.shapes import Ranges

    try:
        content = yaml.safe_load(path.read_text())
        collectives = content.pop("collectives", None)
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in content.items()
        }
        _check_ranges(values)
        return Ranges(**values), CollectiveGrid(**collectives) if collectives else None
    except (OSError, ValueError, yaml.YAMLError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: no box of shapes ({error}); see configs/sampling/cpu.yml for the keys") from None


def _check_ranges(values: dict[str, Any]) -> None:
    """Raises ValueError for what is no range of positive sizes, all of them at once."""
    faults = [
        f"{key}: {list(value)} is no pair of positive numbers, the smaller first"
        for key, value in values.items()
        if isinstance(value, tuple)
        and key not in ("head_dims",)
        and len(value) == 2
        and not (all(isinstance(end, int | float) and end > 0 for end in value) and value[0] <= value[1])
    ]
    if faults:
        raise ValueError("; ".join(faults))


if __name__ == "__main__":
    if sys.argv[1:2] == ["import"]:
        from sampling.importers.command import main as main_of_import

        sys.exit(main_of_import(sys.argv[2:]))
    sys.exit(main_of_process())
