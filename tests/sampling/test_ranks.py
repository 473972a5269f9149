"""Several nodes, played by processes of this one: torchrun's agents, and srun's tasks."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from sampling.cells.data_parallel import ShardedAdamW
from sampling.collectives.kinds import AllReduce
from sampling.operators.gemm import Gemm
from sampling.ranks.launch import ROOT
from sampling.store.profiles import read_manifest
from tests.sampling.ranks.rank_jobs import free_port, job_of, kept
from tests.sampling.small_sessions import BOX

pytestmark = pytest.mark.usefixtures("starts_warm")
LEADING = str(Path(__file__).with_name("ranks") / "leading_ranks.py")


def test_groups_across_nodes_are_timed_by_the_ranks_of_two_torchruns(tmp_path: Path) -> None:
    whole = AllReduce(size_bytes=4096, ranks=4, ranks_per_node=2)
    across = AllReduce(size_bytes=4096, ranks=2, ranks_per_node=1, groups=2)
    cell = ShardedAdamW(dtype="fp32", parameters=64, tensors=1, dp=2, group_nodes=2)
    lone = Gemm(dtype="fp32", m=8, n=8, k=8)
    jobs = [
        replace(job_of(tmp_path, 2, whole, across), nodes=2),
        replace(job_of(tmp_path, 2, cell), nodes=2, group=(2, 1)),
        job_of(tmp_path, 1, lone),
    ]
    (tmp_path / "jobs.json").write_text(json.dumps([asdict(job) for job in jobs]))
    port = free_port()
    agents = [start_agent(node, port, [LEADING, str(tmp_path / "jobs.json")]) for node in range(2)]
    output = [agent.communicate(timeout=90)[1] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], output
    rows = kept(tmp_path)
    assert {row.call for row in rows} == {whole, across, cell, lone}
    assert {(row.call, row.busy_ranks) for row in rows} >= {(whole, 2), (lone, 1)}
    provenance = json.loads((tmp_path / "provenance.json").read_text())
    assert (provenance["nodes"], provenance["gpus_per_node"], len(provenance["hosts"])) == (2, 2, 2)


def start_agent(node: int, port: int, worker: list[str]) -> subprocess.Popen[str]:
    meeting = ["--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", str(port)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"]
    command = [*torchrun, *meeting, *worker]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def test_the_command_runs_as_it_is_under_srun(tmp_path: Path) -> None:
    (tmp_path / "box.yml").write_text(BOX.replace("}", ", collectives: {sizes: 1}}"))
    (tmp_path / "cluster.yml").write_text("{hardware: cpu, nodes: 2, gpus_per_node: 1, profile: test}")
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\n[ "$*" = "show hostnames node[01-02]" ] && echo 127.0.0.1 && echo node02\n')
    scontrol.chmod(0o755)
    port = free_port()
    tasks = [start_task(task, port, tmp_path) for task in range(2)]
    output = [task.communicate(timeout=90) for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], output
    assert "timed" in output[0][0]
    assert not output[1][0]
    across = AllReduce(size_bytes=1024, ranks=2, ranks_per_node=1)
    directory = tmp_path / "samples" / "test"
    assert across in {row.call for row in kept(directory)}
    session = read_manifest(directory).sessions[0]
    assert session["communication"]["nodes"] == 2


def start_task(task: int, port: int, folder: Path) -> subprocess.Popen[str]:
    slurm = {
        "SLURM_JOB_ID": "7",
        "SLURM_PROCID": str(task),
        "SLURM_LOCALID": "0",
        "SLURM_NTASKS": "2",
        "SLURM_NNODES": "2",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_JOB_NODELIST": "node[01-02]",
        "MASTER_PORT": str(port),
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    files = ["--cluster", str(folder / "cluster.yml"), "--ranges", str(folder / "box.yml"), "--data", str(folder)]
    return subprocess.Popen(
        [sys.executable, "-m", "sampling", *files, "--models", "0", "--budget", "2"],
        env={**os.environ, **slurm},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
