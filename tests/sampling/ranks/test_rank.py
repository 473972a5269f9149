"""Who a process is, by what torchrun or Slurm set."""

import os
import subprocess
from pathlib import Path

import pytest

from sampling.errors import ConfigError
from sampling.files.places import CONFIGS
from sampling.hardware.cluster import Machine
from sampling.ranks.rank import rank_from, torchrun_variables

TORCHRUN = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}
SLURM = {
    "SLURM_JOB_ID": "12345",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_JOB_NODELIST": "gpu[07-08]",
    "MASTER_ADDR": "gpu07",
}


def test_torchruns_rank_knows_its_node_and_siblings() -> None:
    rank = rank_from(TORCHRUN)
    assert (rank.rank, rank.node, rank.machine) == (5, 1, Machine(nodes=2, gpus_per_node=4))
    assert list(rank.siblings) == [4, 5, 6, 7]


def test_sruns_task_gets_the_variables_of_torchrun() -> None:
    added = torchrun_variables(SLURM)
    assert added.items() >= TORCHRUN.items()
    assert added["MASTER_ADDR"] == "gpu07"
    assert 20_000 <= int(added["MASTER_PORT"]) < 32_768
    assert torchrun_variables(SLURM | {"SLURM_PROCID": "0"})["MASTER_PORT"] == added["MASTER_PORT"]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WORLD_SIZE": "1", "RANK": "0"},
        {name: value for name, value in SLURM.items() if "STEP" not in name},  # a batch script, before any srun
        TORCHRUN | SLURM,  # torchrun, started by srun
    ],
)
def test_others_are_no_tasks_of_srun(environment: dict[str, str]) -> None:
    assert torchrun_variables(environment) == {}


def test_a_process_without_company_is_no_rank() -> None:
    assert rank_from({"WORLD_SIZE": "1"}) is None


def test_nodes_of_unequal_size_are_refused() -> None:
    with pytest.raises(ConfigError, match="--ntasks-per-node"):
        rank_from(TORCHRUN | {"LOCAL_RANK": "2"})
    with pytest.raises(ConfigError, match="7 tasks on 2 nodes"):
        torchrun_variables(SLURM | {"SLURM_STEP_NUM_TASKS": "7"})


def test_a_missing_scontrol_is_an_error_that_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="set MASTER_ADDR"):
        torchrun_variables({name: value for name, value in SLURM.items() if name != "MASTER_ADDR"})


def test_a_lone_world_size_is_refused_with_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="RANK, LOCAL_RANK, LOCAL_WORLD_SIZE is not set"):
        rank_from({"WORLD_SIZE": "2"})


def test_the_slurm_job_gives_each_rank_its_cores(tmp_path: Path) -> None:
    (tmp_path / "srun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_CPUS_PER_TASK": "8"}
    job = ["bash", str(CONFIGS / "clusters" / "slurm.sbatch")]
    arguments = subprocess.run(job, env=variables, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "--cpus-per-task=8" in arguments[: arguments.index("-m")]
