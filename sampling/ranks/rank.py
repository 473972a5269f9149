"""The rank that this process is, if torchrun or Slurm's srun has started it as one of several."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from sampling.errors import ConfigError
from sampling.hardware.cluster import Machine
from sampling.ranks.launch import rank_environment

FIRST_PORT, PORTS = 20_000, 12_000
"""Ports for the rendezvous of a Slurm job, chosen by its number: below those that Linux assigns by itself (32768…)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    """This process among all that run the command; ranks are numbered node by node."""

    rank: int
    local_rank: int
    machine: Machine

    @property
    def node(self) -> int:
        return self.rank // self.machine.gpus_per_node

    @property
    def siblings(self) -> range:
        """The ranks of this node, this one included."""
        first = self.node * self.machine.gpus_per_node
        return range(first, first + self.machine.gpus_per_node)


def rank_from(environment: Mapping[str, str]) -> Rank | None:
    """This rank by torchrun's variables; None for a single process. ConfigError for nodes of unequal size."""
    world = int(environment.get("WORLD_SIZE", "1"))
    if world == 1:
        return None
    lacking = [name for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE") if name not in environment]
    if lacking:
        raise ConfigError(
            f"WORLD_SIZE={world} says this is one rank of several, but {', '.join(lacking)} is not set; start it with "
            "torchrun or srun, or unset WORLD_SIZE"
        )
    rank, local_rank = int(environment["RANK"]), int(environment["LOCAL_RANK"])
    local_world = int(environment["LOCAL_WORLD_SIZE"])
    if world % local_world or rank % local_world != local_rank:
        raise ConfigError(
            f"rank {rank} of {world} is number {local_rank} of {local_world} on its node: every node must run the same number of "
            "ranks, numbered node by node (torchrun: the same --nproc-per-node; srun: --ntasks-per-node with --distribution=block)"
        )
    return Rank(
        rank=rank,
        local_rank=local_rank,
        machine=Machine(nodes=world // local_world, gpus_per_node=local_world),
    )


def torchrun_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that torchrun would have set, for a task that srun started; {} for any other process.

    A batch script has SLURM_PROCID and SLURM_NTASKS too and is not a task: only a step of several tasks counts.
    """
    if "WORLD_SIZE" in environment or int(environment.get("SLURM_STEP_NUM_TASKS", "1")) == 1:
        return {}
    tasks = int(environment["SLURM_STEP_NUM_TASKS"])
    nodes = int(environment.get("SLURM_STEP_NUM_NODES") or environment.get("SLURM_NNODES", "1"))
    if tasks % nodes:
        raise ConfigError(
            f"srun: {tasks} tasks on {nodes} nodes are not the same number on each; set --ntasks-per-node"
        )
    return {
        "RANK": environment["SLURM_PROCID"],
        "LOCAL_RANK": environment["SLURM_LOCALID"],
        "WORLD_SIZE": str(tasks),
        "LOCAL_WORLD_SIZE": str(tasks // nodes),
        "MASTER_ADDR": environment.get("MASTER_ADDR") or _first_host(environment),
        "MASTER_PORT": environment.get("MASTER_PORT") or str(FIRST_PORT + int(environment["SLURM_JOB_ID"]) % PORTS),
    }


def _first_host(environment: Mapping[str, str]) -> str:
    hosts = environment.get("SLURM_STEP_NODELIST") or environment["SLURM_JOB_NODELIST"]
    try:
        command = ["scontrol", "show", "hostnames", hosts]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError) as error:
        raise ConfigError(
            f"SLURM_JOB_NODELIST: `scontrol show hostnames {hosts}` gave no host ({error}); set MASTER_ADDR to the first node"
        ) from None


def become_rank(arguments: list[str]) -> None:
    """Replace this process by one with a rank's environment, if variables are missing that must be set before Python starts.

    The process id stays, so the launcher still waits for it.
    """
    added = torchrun_variables(os.environ)
    rank = rank_from({**os.environ, **added})
    if rank is None:
        return
    added |= rank_environment(0)
    if added.items() <= os.environ.items():
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-m", "sampling", *arguments], {**os.environ, **added})


def host() -> str:
    return socket.gethostname()
