"""Elements by SOLAR's rule, operation by operation."""

from __future__ import annotations

from pathlib import Path

import pytest

from predict.bounds.element_counts import element_counts
from predict.bounds.read_module import read_module
from tests.predict.bounds.modules import forward, graph_of, write

X, Y = "torch.randn(8, 16)", "torch.randn(8, 16)"
LINEAR = "self.a = nn.Linear(16, 4, bias=False)"
CASES = {
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


@pytest.mark.parametrize("case", CASES)
def test_elements_of_an_operation(case: str, tmp_path: Path) -> None:
    expression, type_, counts = CASES[case]
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
