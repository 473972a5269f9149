"""A file that cannot be read as a module: one line that names the operation and the line of the file."""

import runpy
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from predict.bounds.element_counts import element_counts
from predict.bounds.kernels import Tensor
from predict.bounds.read_module import macs_of, read_module
from sampling.errors import UserError
from tests.predict.bounds.modules import forward, graph_of, write

INPUT = "torch.randn(4, 8)"
CASES = {
    "no Model": (
        "class Modle: pass\ndef get_inputs(): return []",
        r"module.py: Model: missing; did you mean 'Modle'\?",
    ),
    "no class": ("Model = 3\ndef get_inputs(): return []", r"module.py: Model: not callable; define class Model"),
    "no inputs": ("class Model(nn.Module): pass", r"get_inputs: missing; define"),
    "no module": ("class Model: pass\ndef get_inputs(): return []", r"Model makes a Model; make it a torch.nn.Module"),
    "no list of inputs": ("class Model(nn.Module): pass\ndef get_inputs(): return 3", r"get_inputs\(\) returns int;"),
    "arguments of Model": (
        "class Model(nn.Module):\n    def __init__(self, a): pass\ndef get_inputs(): return []",
        r"Model\(\*get_init_inputs\(\)\) failed: TypeError",
    ),
    "no Python": ("class Model(nn.Module)\n", r"module.py:4: not valid Python"),
    "a missing library": ("import notthere\n", r"module.py:4: running it failed: ModuleNotFoundError"),
    "rows by value": (
        forward("x[torch.nonzero(x)[:, 0]]", INPUT),
        r"module.py:10: nonzero cannot be counted: the size",
    ),
    "a choice by value": (
        forward("x if x.sum() > 0 else -x", INPUT),
        r"module.py:10: `return x if .* cannot be exported: the size",
    ),
    "a size by value": (
        forward("torch.zeros(int(x.max().item()))", INPUT),
        r"module.py:10: .* cannot be exported: the size",
    ),
    "sizes that differ": (
        forward("self.a(x)", INPUT, parts="self.a = nn.Linear(7, 3)"),
        r"module.py:10: `return self.a\(x\)`",
    ),
    "an exit": (
        forward("sys.exit(0)", INPUT, parts="global sys; import sys"),
        r"module.py:10: `return sys.exit\(0\)` cannot be exported: SystemExit",
    ),
    "a graph of its own": (
        forward("torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,))", INPUT),
        r"module.py:10: cond is not read",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_line_of_what_cannot_be_read_is_reported(
    case: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body, message = CASES[case]
    with pytest.raises(UserError, match=message) as caught:
        read_module(write(tmp_path, body), "bf16")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_what_a_file_prints_goes_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read_module(write(tmp_path, f"print('hello')\n{forward('x + 1', INPUT)}"), "bf16")
    assert capsys.readouterr() == ("", "hello\n")


def test_no_weight_takes_memory(tmp_path: Path) -> None:
    graph = read_module(
        write(tmp_path, forward("self.a(x)", "torch.randn(1, 2**20)", parts="self.a = nn.Linear(2**20, 2**20)")), "bf16"
    )
    assert sum(tensor.size_bytes for tensor in graph.weights) > 2**41


def test_there_is_such_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file"):
        read_module(tmp_path / "nothing.py", "bf16")


# Multiply-accumulates are half the FLOPs that torch counts while the same module runs.

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
    "ResNet": ("ResNet", "Model", "depths=[1], hidden_sizes=[16], embedding_size=8", PICTURE),
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


# Elements by SOLAR's rule, operation by operation.

X, Y = "torch.randn(8, 16)", "torch.randn(8, 16)"
LINEAR = "self.a = nn.Linear(16, 4, bias=False)"
COUNTED = {
    "elementwise": ("x + y", "add", (8 * 16 * 3, 8 * 16 * 3, 8 * 16)),
    "a product": ("self.a(x)", "linear", (8 * 16 + 16 * 4 + 8 * 4, 8 * 16 + 16 * 4 + 8 * 4, 0)),
    "a view": ("x.t() + 0 * y.t()", "t", (0, 0, 0)),
    "a slice reads what it takes": ("x[:2] + 0 * y[:2]", "slice", (2 * 16, 2 * 16, 0)),
    "a reduction": ("x.sum(-1) + y.sum(-1)", "sum", (8 * 16 + 8, 8 * 16, 8 * 16)),
    "a gather writes nothing": ("x.index_select(0, y.argmax(0)[:2]) + 1", "index_select", (2 * 16, 2 * 16, 0)),
    "an update writes one part": ("x.slice_scatter(y[:2], 0, 0, 2)", "slice_scatter", (2 * 16, 2 * 16, 0)),
    "bools are free": ("torch.where(x > y, x, y)", "gt", (0, 0, 0)),
    "a cast is no work": ("x.float() + y", "to", (2 * 8 * 16, 8 * 16, 0)),
    "what no input reaches is free": ("x + torch.arange(16).exp()", "exp", (0, 0, 0)),
}


@pytest.mark.parametrize("case", COUNTED)
def test_elements_of_an_operation(case: str, tmp_path: Path) -> None:
    expression, type_, counts = COUNTED[case]
    layers = element_counts(graph_of(tmp_path, expression, X, Y, parts=LINEAR)).layers
    layer = next(each for each in layers if each.type == type_)
    assert (layer.unfused, layer.fused, layer.other_ops) == counts


def test_a_tensor_read_twice_counts_once_in_the_whole(tmp_path: Path) -> None:
    counts = element_counts(graph_of(tmp_path, "F.gelu(x) * y + x", X, Y))
    assert (counts.total("unfused"), counts.total("fused"), counts.fused) == (8 * 8 * 16, 4 * 8 * 16, 3 * 8 * 16)
    assert counts.intermediate_tensors == 2


def test_a_tied_weight_is_one_tensor(tmp_path: Path) -> None:
    parts = "self.e, self.h = nn.Embedding(32, 16), nn.Linear(16, 32, bias=False); self.h.weight = self.e.weight"
    body = forward("self.h(self.e(x))", "torch.zeros(4, dtype=torch.int64)", parts=parts)
    assert element_counts(read_module(write(tmp_path, body), "bf16")).weights == 32 * 16


def test_a_tensor_made_in_forward_lies_beside_the_inputs(tmp_path: Path) -> None:
    expression = "F.scaled_dot_product_attention(x, x, x, torch.ones(8, 8, dtype=torch.bool).tril())"
    graph = graph_of(tmp_path, expression, "torch.randn(1, 1, 8, 16)")
    assert [each.kind for each in graph.operations][-1] == "attention"
