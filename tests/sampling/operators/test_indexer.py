"""The indexer of DeepSeek's sparse attention (indexer.py)."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from sampling.operators.indexer import Indexer
from sampling.torch_work.build import build

CALL = Indexer(dtype="fp32", batch=2, seq_len=12, heads=3, head_dim=8, topk=5)


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_its_flops_are_those_of_its_products(phase: str) -> None:
    workload = build(CALL, torch.device("cpu"))
    workload.prepare(phase)
    with FlopCounterMode(display=False) as counter:
        workload.run(phase)
    assert counter.get_total_flops() == CALL.flops(phase)


def test_a_kernel_skips_what_the_mask_hides() -> None:
    assert CALL.executed_flops("forward") / CALL.flops("forward") == pytest.approx(13 / 24)
    assert CALL.bytes_moved("backward") == 2 * CALL.bytes_moved("forward")
