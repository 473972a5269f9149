"""Mamba-2's operators (state_space.py): their FLOPs are torch's, and the chunks compute the recurrence that the paper defines."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from sampling.operators.state_space import CausalConv, StateSpaceScan
from sampling.torch_work.build import build
from sampling.torch_work.operators.state_space import chunked_scan

CPU = torch.device("cpu")
SCAN = StateSpaceScan(
    dtype="fp32", batch=2, seq_len=20, heads=6, head_dim=5, groups=2, state_dim=3, chunk=8
)  # name: state_space_scan
CONV = CausalConv(dtype="fp32", batch=2, seq_len=12, channels=10, width=4)  # name: causal_conv


def one_by_one(
    x: torch.Tensor, step: torch.Tensor, decay: torch.Tensor, into: torch.Tensor, out: torch.Tensor, skip: torch.Tensor
) -> torch.Tensor:
    """The recurrence, one token after the other."""
    batch, seq, heads, width = x.shape
    repeats = heads // into.shape[2]
    into, out = (one.repeat_interleave(repeats, dim=2) for one in (into, out))
    state, outputs = torch.zeros(batch, heads, width, into.shape[-1]), []
    for at in range(seq):
        kept = torch.exp(step[:, at] * decay)[..., None, None]
        state = kept * state + (step[:, at, :, None] * x[:, at])[..., None] * into[:, at, :, None, :]
        outputs.append((state * out[:, at, :, None, :]).sum(-1) + skip[:, None] * x[:, at])
    return torch.stack(outputs, dim=1)


@pytest.mark.parametrize("seq", [8, 20])
def test_chunks_compute_the_recurrence(seq: int) -> None:
    torch.manual_seed(0)
    x, step = torch.randn(2, seq, 6, 5), functional.softplus(torch.randn(2, seq, 6))
    into, out = torch.randn(2, seq, 2, 3), torch.randn(2, seq, 2, 3)
    decay, skip = -torch.rand(6), torch.randn(6)
    expected = one_by_one(x, step, decay, into, out, skip)
    for chunk in (1, 8, 64):
        torch.testing.assert_close(chunked_scan(x, step, decay, into, out, skip, chunk=chunk), expected)


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_the_flops_of_the_scan_are_those_of_its_products(phase: str) -> None:
    workload = build(SCAN, CPU)
    workload.prepare(phase)
    with FlopCounterMode(display=False) as counter:
        workload.run(phase)
    assert counter.get_total_flops() == SCAN.flops(phase)


def test_a_last_chunk_is_computed_in_full() -> None:
    assert SCAN.flops("forward") == replace(SCAN, seq_len=24).flops("forward")


def test_a_convolution_sees_no_later_token() -> None:
    torch.manual_seed(0)
    build(CONV, CPU).run("forward")
    weight, x = torch.randn(10, 1, 4), torch.randn(2, 10, 12)
    changed = x.clone()
    changed[..., 7:] += 1
    first, second = (functional.conv1d(one, weight, padding=3, groups=10)[..., :12] for one in (x, changed))
    assert torch.equal(first[..., :7], second[..., :7])
    assert CONV.bytes_moved("backward") == 1.5 * CONV.bytes_moved("forward") == 3 * 4 * 2 * 12 * 10
