"""Multiply-accumulates are half the FLOPs that torch counts while the same module runs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from predict.bounds.element_counts import element_counts
from predict.bounds.kernels import Tensor
from predict.bounds.read_module import macs_of, read_module
from tests.predict.bounds.modules import forward, write

PRODUCTS = {
    "linear": forward("self.a(x)", "torch.randn(2, 3, 8)", parts="self.a = nn.Linear(8, 5)"),
    "linear of a vector": forward("self.a(x)", "torch.randn(8)", parts="self.a = nn.Linear(8, 5)"),
    "matmul": forward("x @ y", "torch.randn(2, 3, 4, 8)", "torch.randn(8, 6)"),
    "addmm": forward("torch.addmm(z, x, y)", "torch.randn(3, 8)", "torch.randn(8, 6)", "torch.randn(6)"),
    "baddbmm": forward(
        "torch.baddbmm(z, x, y)", "torch.randn(2, 3, 8)", "torch.randn(2, 8, 6)", "torch.randn(2, 3, 6)"
    ),
    "einsum": forward("torch.einsum('...ik,kj->...ij', x, y)", "torch.randn(2, 3, 4, 8)", "torch.randn(8, 6)"),
    "einsum of three": forward(
        "torch.einsum('bi,ij,bj->b', x, y, z)", "torch.randn(2, 3)", "torch.randn(3, 4)", "torch.randn(2, 4)"
    ),
    "convolution": forward("self.a(x)", "torch.randn(2, 4, 9, 9)", parts="self.a = nn.Conv2d(4, 6, 3, 2, groups=2)"),
    "convolution back": forward("self.a(x)", "torch.randn(2, 4, 9)", parts="self.a = nn.ConvTranspose1d(4, 6, 3)"),
    "attention": forward(
        "F.scaled_dot_product_attention(x, y, z, is_causal=True)",
        "torch.randn(1, 2, 8, 4)",
        "torch.randn(1, 2, 8, 4)",
        "torch.randn(1, 2, 8, 4)",
    ),
    "without gradients, in another type": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
    def forward(self, x):
        with torch.no_grad():
            y = self.a(x)
        with torch.autocast('cpu', dtype=torch.bfloat16):
            return self.a(y)
def get_inputs():
    return [torch.randn(4, 8)]
""",
}
IMPORTS = "from transformers import {0}Config, {0}{1}\n"
FAMILY = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = {0}{1}({0}Config({2})).eval()
    def forward(self, x):
        return self.inner(x)[0]
def get_inputs():
    return [{3}]
"""
TOKENS, PICTURE = "torch.zeros(1, 16, dtype=torch.int64)", "torch.randn(1, 3, 64, 64)"
SIZES = "vocab_size=32, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2"
FAMILIES = {
    "ResNet": ("ResNet", "Model", "depths=[1, 2], hidden_sizes=[16, 32], embedding_size=8", PICTURE),
    "ViT": (
        "ViT",
        "Model",
        "image_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4",
        PICTURE,
    ),
    "Llama": ("Llama", "Model", SIZES, TOKENS),
    "Mixtral": ("Mixtral", "Model", f"{SIZES}, num_local_experts=4, experts_implementation='grouped_mm'", TOKENS),
    "a scan": ("Mamba", "Model", "vocab_size=32, hidden_size=32, num_hidden_layers=1", TOKENS),
}
UNCOUNTED = {"Mixtral": 2 * 3 * (16 * 2) * 32 * 64}
"""FLOPs of grouped products, which torch does not count: three matrices for each of two experts of 16 tokens."""


def _torch_counts(path: Path) -> int:
    # on the meta device attention is its two products, which are counted; a CPU's own kernel of attention is not
    with torch.device("meta"):
        names = runpy.run_path(str(path))
        module = names["Model"]().to(torch.bfloat16)
        inputs = [each.bfloat16() if each.is_floating_point() else each for each in names["get_inputs"]()]
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            module(*inputs)
    return counter.get_total_flops()


@pytest.mark.parametrize("product", PRODUCTS)
def test_products_are_counted_as_torch_counts_them(product: str, tmp_path: Path) -> None:
    path = write(tmp_path, PRODUCTS[product])
    assert 2 * element_counts(read_module(path, "bf16")).total("macs") == _torch_counts(path) > 0


@pytest.mark.parametrize(
    ("left", "right"), [((6, 8), (3, 8, 4)), ((3, 4, 8), (8, 6)), ((4, 6), (6, 8)), ((1, 6, 8), (1, 8, 4))]
)
def test_each_row_or_column_of_a_grouped_product_meets_the_matrix_of_its_group(
    left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    """Three groups share 6 rows, columns, or terms of a sum; a stack of one is a plain product. torch does not count these."""
    reads = [Tensor(name="", shape=shape, dtype="bfloat16", item_bytes=2.0, role="input") for shape in (left, right)]
    assert macs_of("_grouped_mm", reads, reads[0], ()) == 6 * 8 * 4


@pytest.mark.parametrize("family", FAMILIES)
def test_models_of_transformers_are_counted_as_torch_counts_them(family: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    named, *rest = FAMILIES[family]
    path = write(tmp_path, IMPORTS.format(named, rest[0]) + FAMILY.format(named, *rest))
    counted = 2 * element_counts(read_module(path, "bf16")).total("macs")
    assert counted == _torch_counts(path) + UNCOUNTED.get(family, 0)
