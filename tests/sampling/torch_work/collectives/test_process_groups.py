"""Ranks on several GPUs, with torch's calls to the devices and to the network written down in their place."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from sampling.call import Request
from sampling.collectives.kinds import AllReduce, Collective
from sampling.hardware.cluster import Machine
from sampling.ranks import worker
from sampling.ranks.job import Job
from sampling.ranks.rank import Rank
from sampling.ranks.worker import run_job
from sampling.torch_work.collectives import process_groups
from sampling.torch_work.collectives.process_groups import LoneRank
from tests.sampling.ranks.rank_jobs import job_of

MACHINE = Machine(nodes=2, gpus_per_node=4)
WHOLE = AllReduce(size_bytes=4096, ranks=8, ranks_per_node=4)
PAIRS = AllReduce(size_bytes=4096, ranks=2, ranks_per_node=2, groups=4)
ACROSS = AllReduce(size_bytes=4096, ranks=2, ranks_per_node=1, groups=4)


@dataclass(slots=True)
class Written:
    """What one rank asks of torch: its device, its default group, and the groups that it makes, in order."""

    device: torch.device | None = None
    default: dict[str, Any] = field(default_factory=dict)
    made: list[tuple[int, ...]] = field(default_factory=list)
    timeouts: set[Any] = field(default_factory=set)
    own: dict[Collective, Any] = field(default_factory=dict)


def ran(job: Job, rank: int, gpus: int, monkeypatch: pytest.MonkeyPatch) -> Written:
    """What the rank asks for while it runs the job on a node where it sees `gpus` devices."""
    written = Written()

    def init_process_group(backend: str, **options: Any) -> None:
        written.default = {"backend": backend, **options}
        written.timeouts.add(options["timeout"])

    def new_group(members: list[int], *, timeout: Any) -> tuple[int, ...]:
        written.made.append(tuple(members))
        written.timeouts.add(timeout)
        return tuple(members)

    def time_requests(requests: Sequence[Request], *, device: torch.device, **_: Any) -> None:
        written.device = device
        for request in requests:
            if isinstance(request.call, Collective):
                written.own[request.call] = process_groups.present().own(request.call)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(dist, "init_process_group", init_process_group)
    monkeypatch.setattr(dist, "new_group", new_group)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    monkeypatch.setattr(process_groups, "agreement_group", lambda store, rank, ranks: None)
    monkeypatch.setattr(worker, "Agreement", lambda group: LoneRank())
    monkeypatch.setattr(worker, "time_requests", time_requests)
    place = Rank(rank=rank, local_rank=rank % MACHINE.gpus_per_node, machine=MACHINE)
    run_job(job, place, HashStore())
    return written


def on_gpus(directory: Path, hardware: str, *calls: Collective, nodes: int = 2) -> Job:
    return replace(job_of(directory, 4, *calls), hardware=hardware, nodes=nodes, cores=None)


@pytest.mark.parametrize("hardware", ["h100-sxm", "mi300x"])
def test_every_rank_has_its_own_device_and_place_in_one_group_of_all(
    hardware: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = on_gpus(tmp_path, hardware, WHOLE)
    ranks = [ran(job, rank, 4, monkeypatch) for rank in range(MACHINE.ranks)]
    assert [str(written.device) for written in ranks] == [f"cuda:{rank % 4}" for rank in range(8)]
    assert [written.default["rank"] for written in ranks] == list(range(8))
    # torch calls AMD's library by NVIDIA's name
    assert {(written.default["backend"], written.default["world_size"]) for written in ranks} == {("nccl", 8)}


def test_a_rank_that_sees_one_device_alone_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = ran(on_gpus(tmp_path, "h100-sxm", WHOLE), 6, 1, monkeypatch)
    assert str(written.device) == "cuda:0"


def test_all_ranks_make_the_same_groups_in_the_same_order_and_find_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = on_gpus(tmp_path, "h100-sxm", PAIRS, WHOLE, ACROSS, PAIRS)
    ranks = [ran(job, rank, 4, monkeypatch) for rank in range(MACHINE.ranks)]
    pairs = [(0, 1), (2, 3), (4, 5), (6, 7)]
    across = [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert [written.made for written in ranks] == [[*pairs, *across]] * 8
    for rank, written in enumerate(ranks):
        assert written.own[PAIRS] == next(members for members in pairs if rank in members)
        assert written.own[ACROSS] == next(members for members in across if rank in members)
        assert written.own[WHOLE] is dist.group.WORLD


def test_every_group_gives_up_after_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = ran(on_gpus(tmp_path, "mi300x", PAIRS, ACROSS), 3, 4, monkeypatch)
    assert written.timeouts == {process_groups.TIMEOUT}


def test_cells_of_several_groups_have_a_default_group_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = replace(on_gpus(tmp_path, "h100-sxm"), group=(2, 1))
    ranks = [ran(job, rank, 4, monkeypatch).default for rank in range(MACHINE.ranks)]
    assert [(default["rank"], default["world_size"]) for default in ranks] == [(0, 2)] * 4 + [(1, 2)] * 4


def test_ranks_beyond_the_job_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = ran(on_gpus(tmp_path, "h100-sxm", WHOLE, nodes=1), 5, 4, monkeypatch)
    assert written == Written()


def test_ranks_align_by_a_collective_of_all_on_their_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    reduced: list[torch.Tensor] = []
    monkeypatch.setattr(dist, "all_reduce", reduced.append)
    for _ in range(2):
        process_groups.align(torch.device("meta"))
    assert [(tensor.device.type, tensor.numel()) for tensor in reduced] == [("meta", 1)] * 2
    assert reduced[0] is reduced[1]  # nothing is allocated between two runs
