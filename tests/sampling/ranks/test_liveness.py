"""The monitor of other ranks, where the kernel does not report their end."""

import json
import os

import pytest
import torch.distributed as dist

from sampling.hardware.cluster import Machine
from sampling.ranks import liveness
from sampling.ranks.liveness import LivenessMonitor
from sampling.ranks.rank import Rank


def test_a_node_that_falls_silent_is_named_by_its_first_rank(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(liveness, "LOOK_EVERY_MS", 1)
    monkeypatch.setattr(liveness, "NODE_SILENT_S", 0.0)
    exit_codes: list[int] = []
    monkeypatch.setattr(os, "_exit", exit_codes.append)
    store = dist.HashStore()
    store.set("process/1", json.dumps([1, "faraway"]))
    first = Rank(rank=0, local_rank=0, machine=Machine(nodes=2, gpus_per_node=1))
    LivenessMonitor(first, store).wait_for_verdict()
    assert exit_codes == [1]
    assert "rank 0 stops: rank 1 on faraway, or its node, fell silent" in capsys.readouterr().err
    assert store.get("dead").startswith(b"rank 1 on faraway")


def test_what_a_rank_declares_first_stands() -> None:
    store = dist.HashStore()
    alone = Rank(rank=0, local_rank=0, machine=Machine(nodes=1, gpus_per_node=1))
    one = LivenessMonitor(alone, store)
    one.declare(ValueError("out of ink"))
    one.declare(ValueError("out of paper"))
    one.farewell()
    assert b"ValueError: out of ink" in store.get("dead")
