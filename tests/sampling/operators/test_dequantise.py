"""Weights in few bits: their bytes, and torch's own widening of them."""

import pytest
import torch

from sampling.operators.dequantise import STORED_BYTES, Dequantise
from sampling.torch_work.operators.dequantise import MADE, NORMAL_FLOATS

CPU = torch.device("cpu")


def test_double_quantisation_saves_0_373_bits_of_a_weight() -> None:
    """Dettmers et al., arXiv 2305.14314, section 3: from 0.5 to 0.127 bits a parameter."""
    assert 8 * (STORED_BYTES["nf4"] - 0.5) == 0.5
    assert 8 * (STORED_BYTES["nf4_double"] - 0.5) == pytest.approx(0.127, abs=5e-4)


@pytest.mark.parametrize("stored", STORED_BYTES)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_every_weight_is_widened(stored: str, dtype: str) -> None:
    call = Dequantise(dtype=dtype, stored=stored, count=64 * 256 * 3)
    widened = MADE[stored](call, CPU)()
    assert widened.numel() == call.count
    assert widened.element_size() == call.item_bytes and widened.isfinite().all()
    assert call.bytes_moved("forward") == call.count * (STORED_BYTES[stored] + call.item_bytes)


def test_codes_are_values_of_the_format() -> None:
    torch.manual_seed(0)
    call = Dequantise(dtype="fp32", stored="nf4", count=64 * 40)
    widened = MADE["nf4"](call, CPU)()
    relative = widened / widened.abs().amax(dim=1, keepdim=True)
    largest = torch.tensor(NORMAL_FLOATS)
    off = (relative[:, :, None] - largest).abs().amin(dim=-1)
    has_one = (relative.abs() == 1).any(dim=1)
    assert has_one.all() and off[(relative == -1).any(dim=1)].max() < 1e-5
