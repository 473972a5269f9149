"""Soft cap: its traffic, and that its torch work computes it."""

from __future__ import annotations

import torch

from sampling.operators.soft_cap import SoftCap
from sampling.torch_work.build import build

CALL = SoftCap(dtype="bf16", tokens=4096, width=1024)


def test_backward_moves_half_as_much_again_as_forward() -> None:
    tensor = 2 * 4096 * 1024
    assert (CALL.bytes_moved("forward"), CALL.bytes_moved("backward")) == (2 * tensor, 3 * tensor)


def test_every_phase_runs() -> None:
    workload = build(SoftCap(dtype="fp32", tokens=8, width=16), torch.device("cpu"))
    for phase in CALL.PHASES:
        workload.prepare(phase)
        workload.run(phase)
