"""The weight matrices of a layer, written once: parameters, FLOPs, products and shapes on a rank all follow from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Split = Literal["outputs", "inputs", "none"]
Shape = tuple[int, int]
"""[outputs, inputs]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """A weight [outputs, inputs] and how tensor parallelism splits it (Shoeybi et al., arXiv 1909.08053): its outputs
    (column-parallel), its inputs (row-parallel), or not at all. Matrices of one `product` may be fused into one."""

    product: str
    outputs: int
    inputs: int
    split: Split = "none"
    head: int = 1
    """Outputs that stay together on a rank. Where there are fewer heads than ranks, several ranks hold the same one."""
    bias: bool = False
    name: str = ""
    """Name of its module in Hugging Face's checkpoints, by which adapters choose it; empty where its product is one module."""
    is_linear: bool = True
    """One of the layer's linear modules, which a framework quantises and caches by shape; a router or a convolution is not."""

    @property
    def elements(self) -> int:
        return self.outputs * self.inputs

    @property
    def parameters(self) -> int:
        return self.elements + self.outputs * self.bias

    def replicated_parameters(self, tp: int) -> int:
        """Parameters that every one of `tp` ranks holds whole: of a matrix that is not split, or of the head that it shares."""
        if self.split == "none":
            return self.parameters
        if self.split == "outputs" and self.outputs < tp * self.head:
            return self.head * (self.inputs + self.bias)
        return 0

    def split_parameters(self, tp: int) -> int:
        """Parameters that `tp` ranks divide among themselves."""
        return 0 if self.replicated_parameters(tp) else self.parameters

    def on_rank(self, tp: int) -> Matrix:
        if self.split == "outputs":
            heads = self.outputs // self.head
            return replace(self, outputs=max(heads // tp, min(heads, 1)) * self.head)
        return replace(self, inputs=self.inputs // tp) if self.split == "inputs" else self


def attention_matrices(
    *,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    query_gate: bool = False,
    qkv_bias: bool = False,
    key_bias: bool = True,
    output_bias: bool = False,
) -> tuple[Matrix, ...]:
    """Query (twice as wide with a gate), key, value and output of attention. `key_bias`: the key has a bias where the others have."""
    query = head_dim * (2 if query_gate else 1)
    into = (("q_proj", heads, query), ("k_proj", kv_heads, head_dim), ("v_proj", kv_heads, head_dim))
    width = heads * head_dim
    return (
        *(
            Matrix(
                product="qkv",
                name=name,
                outputs=count * head,
                inputs=hidden,
                split="outputs",
                head=head,
                bias=qkv_bias and (key_bias or name != "k_proj"),
            )
            for name, count, head in into
        ),
        Matrix(product="proj", name="o_proj", outputs=hidden, inputs=width, split="inputs", bias=output_bias),
    )


def mlp_matrices(*, hidden: int, width: int, gated: bool, bias: bool = False) -> tuple[Matrix, ...]:
    """Up (and gate) and down of an MLP `width` wide inside."""
    into = ("gate_proj", "up_proj") if gated else ("up_proj",)
    return (
        *(Matrix(product="up", name=name, outputs=width, inputs=hidden, split="outputs", bias=bias) for name in into),
        Matrix(product="down", name="down_proj", outputs=hidden, inputs=width, split="inputs", bias=bias),
    )


def products_on_rank(matrices: Iterable[Matrix], tp: int) -> dict[str, Shape]:
    """The shape of each product on one of `tp` ranks, its matrices fused into one."""
    shapes: dict[str, Shape] = {}
    for matrix in matrices:
        own = matrix.on_rank(tp)
        shapes[own.product] = (shapes.get(own.product, (0, 0))[0] + own.outputs, own.inputs)
    return shapes
