"""The worker on two real ranks over gloo: compute beside communication, a rank that is killed, a disk that is full."""

import errno
import json
import os
import socket
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pandas
import pytest

from sampling.cells.overlap import Overlap
from sampling.collectives.kinds import AllReduce, AllToAll, SendRecv
from sampling.errors import UserError
from sampling.hardware.this_device import identify
from sampling.operators.gemm import Gemm
from sampling.ranks.job import run_on_local_ranks
from sampling.ranks.launch import ROOT, launch, rank_environment
from sampling.ranks.worker import ALONE, run_job
from sampling.session.profile import open_profile
from sampling.store.profiles import Manifest, write_manifest
from sampling.store.tables import iterate_samples, read_samples
from tests.sampling.ranks.rank_jobs import free_port, job_of, kept

DYING = str(Path(__file__).with_name("dying_rank.py"))
REDUCE = AllReduce(size_bytes=4096, ranks=2, ranks_per_node=2)
EXCHANGE = AllToAll(size_bytes=4096, ranks=2, ranks_per_node=2)
BESIDE = Overlap(dtype="fp32", m=64, n=64, k=64, collective="all_reduce", size_bytes=4096, ranks=2, ranks_per_node=2)


@pytest.mark.usefixtures("starts_warm")
def test_compute_and_communication_are_timed_alone_and_beside_each_other(tmp_path: Path) -> None:
    pair = SendRecv(size_bytes=4096, ranks=2, ranks_per_node=2)
    alone = (REDUCE, pair, BESIDE.gemm)
    run_on_local_ranks(job_of(tmp_path, 2, *alone, BESIDE), lambda: None)
    rows = {(sample.call, sample.phase): sample.time_us for sample in kept(tmp_path)}
    assert rows.keys() == {(call, phase) for call in (*alone, BESIDE) for phase in call.PHASES}
    assert all(time_us > 0 for time_us in rows.values())


@pytest.mark.usefixtures("starts_warm")
def test_a_killed_rank_is_named_and_finished_rows_are_kept(tmp_path: Path) -> None:
    job_file = tmp_path / "job.json"
    job_file.write_text(json.dumps(asdict(job_of(tmp_path, 2, REDUCE, EXCHANGE))))
    with pytest.raises(UserError, match=rf"doomed.*rank 1 on {socket.gethostname()}"):
        launch([DYING, "1", str(job_file)], name="doomed", processes=2, threads=1, timeout_s=60)
    assert [sample.call for sample in kept(tmp_path)] == [REDUCE]


@pytest.mark.usefixtures("starts_warm")
def test_the_rank_that_keeps_the_store_is_named_too_where_no_torchrun_looks_after_the_ranks(tmp_path: Path) -> None:
    job_file = tmp_path / "job.json"
    job_file.write_text(json.dumps(asdict(job_of(tmp_path, 2, REDUCE, EXCHANGE))))
    port = free_port()
    first, second = (start_rank(rank, ranks=2, port=port, arguments=[DYING, "0", str(job_file)]) for rank in (0, 1))
    _, printed = second.communicate(timeout=60)
    first.communicate(timeout=60)
    assert first.returncode < 0 < second.returncode
    assert f"rank 0 on {socket.gethostname()} died" in printed
    assert [sample.call for sample in kept(tmp_path)] == [REDUCE]


def start_rank(rank: int, *, ranks: int, port: int, arguments: list[str]) -> subprocess.Popen[str]:
    """Ranks as srun starts them: no torchrun above it, the store in rank 0."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
    environment = {name: str(value) for name, value in numbers.items()} | {"MASTER_ADDR": "127.0.0.1"}
    environment = {**os.environ, **rank_environment(1), **environment, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, *arguments], env=environment, stderr=subprocess.PIPE, text=True)


def test_a_full_disk_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    gemm = Gemm(dtype="fp32", m=8, n=8, k=8)
    run_job(job_of(tmp_path, 1, gemm), ALONE, None)
    before = kept(tmp_path)
    (tmp_path / "journal.jsonl").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"journal\.jsonl: cannot be written \(No space left on device\).*run again"):
        run_job(job_of(tmp_path, 1, replace(gemm, m=16)), ALONE, None)
    assert list(iterate_samples(read_samples(tmp_path))) == before


def test_rows_that_a_full_disk_keeps_out_of_the_tables_stay_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_job(job_of(tmp_path, 1, Gemm(dtype="fp32", m=8, n=8, k=8)), ALONE, None)
    write_manifest(tmp_path, Manifest(profile="test", hardware="cpu", device=identify("cpu")))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with (
        monkeypatch.context() as patch,
        pytest.raises(UserError, match=r"cannot be written \(No space left") as printed,
    ):
        patch.setattr(pandas.DataFrame, "to_parquet", full)
        open_profile(tmp_path, profile="test", hardware="cpu")
    assert str(tmp_path) in str(printed.value)
    assert len(kept(tmp_path)) == 4
