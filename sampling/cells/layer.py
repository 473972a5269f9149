"""A whole dense transformer layer, which measures what the sum of its operators misses: in training, and as it generates a token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sampling.arithmetic.operator import COPIES, Composite, Operator, counted_in
from sampling.call import Counted, Phase, register
from sampling.cells.matrices import Matrix, attention_matrices, mlp_matrices
from sampling.collectives.kinds import Group, entering_group, summed_over_group
from sampling.operators.attention import Attention, DecodeAttention
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import NORMS, Gelu, ResidualAdd, RoPE, SwiGLU

CELL_PHASES: tuple[Phase, ...] = (
    "forward",
    "backward",
    "backward_accumulate",
    "backward_input",
    "backward_weight",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerShape(Composite):
    """The fields that determine the cost of a dense decoder layer, on one rank of `tp`.

    The input is [batch, seq, hidden] ([batch, seq/tp, hidden] with sp). `norm` is rms or layer. `gated` is a SwiGLU MLP of
    three matrices, otherwise a GELU one of two. `qkv_bias` puts biases on query, key and value, `bias` on the other
    projections, except attention's output if `output_bias` differs.
    """

    batch: int
    seq_len: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    gated: bool
    norm: str
    rope: bool
    qkv_bias: bool
    bias: bool
    tp: int
    sp: bool
    group_nodes: int = 1
    """Nodes over which the group is spread."""
    output_bias: str = ""
    """Bias of attention's output projection: `with`, `without`, or empty to follow `bias`."""
    compiled: bool = False
    """Whether the layer runs under torch.compile, which fuses the operators between its products."""

    @property
    def group_size(self) -> int:
        return self.tp

    @property
    def has_output_bias(self) -> bool:
        return self.output_bias == "with" if self.output_bias else self.bias

    def attention_matrices(self) -> tuple[Matrix, ...]:
        """Query, key, value and output on one rank."""
        whole = attention_matrices(
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            qkv_bias=self.qkv_bias,
            output_bias=self.has_output_bias,
        )
        return tuple(matrix.on_rank(self.tp) for matrix in whole)

    def mlp_matrices(self) -> tuple[Matrix, ...]:
        """Up (and gate) and down on one rank."""
        whole = mlp_matrices(hidden=self.hidden, width=self.ffn, gated=self.gated, bias=self.bias)
        return tuple(matrix.on_rank(self.tp) for matrix in whole)

    def weight_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the layer's weights on one rank: matrices as [out, in], then vectors."""
        matrices = (*self.attention_matrices(), *self.mlp_matrices())
        norms = [(self.hidden,)] * (2 if self.norm == "rms" else 4)
        biases = [(matrix.outputs,) for matrix in matrices if matrix.bias]
        return [*((matrix.outputs, matrix.inputs) for matrix in matrices), *norms, *biases]

    def weight_bytes(self) -> int:
        return self.item_bytes * sum(math.prod(shape) for shape in self.weight_shapes())

    def resident_bytes(self) -> float:
        # `bytes_moved` already counts a tensor twice that one part writes and the next reads, and only weights keep gradients
        return COPIES * (self.bytes_moved("forward") + self.weight_bytes())

    def parts(self, phase: Phase) -> Sequence[Counted]:
        """Operators and collectives of one layer in one phase."""
        return (*self._operators_of(phase), *self._collectives_of(phase))

    def _operators_of(self, phase: Phase) -> tuple[Counted, ...]:
        attention, rotations = self.attention_calls(), self.rotation_calls()
        norm, *residual = self.frame_calls()
        calls = (norm, *attention, *self.mlp_calls(), *residual, *rotations)
        return counted_in(phase, calls)

    def frame_calls(self) -> list[tuple[Operator, int]]:
        """Norms and residual additions around attention and the MLP."""
        tokens = self.batch * self.seq_len // (self.tp if self.sp else 1)
        return [
            (NORMS[self.norm](dtype=self.dtype, tokens=tokens, hidden=self.hidden), 2),
            (ResidualAdd(dtype=self.dtype, tokens=tokens, hidden=self.hidden), 2),
        ]

    def attention_calls(self) -> list[tuple[Operator, int]]:
        """Projections, and the attention between them."""
        heads, kv_heads = self.heads // self.tp, self.kv_heads // self.tp
        attention = Attention(
            dtype=self.dtype,
            batch=self.batch,
            seq_len=self.seq_len,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=self.head_dim,
            causal=True,
        )
        query, key, _, output = self.attention_matrices()
        return [(self._gemm(query), 1), (self._gemm(key), 2), (attention, 1), (self._gemm(output), 1)]

    def rotation_calls(self) -> list[tuple[Operator, int]]:
        if not self.rope:
            return []
        shape: dict[str, Any] = {
            "dtype": self.dtype,
            "batch": self.batch,
            "seq_len": self.seq_len,
            "head_dim": self.head_dim,
        }
        return [(RoPE(**shape, heads=heads // self.tp), 1) for heads in (self.heads, self.kv_heads)]

    def mlp_calls(self) -> list[tuple[Operator, int]]:
        tokens, width = self.batch * self.seq_len, self.ffn // self.tp
        activation = (SwiGLU if self.gated else Gelu)(dtype=self.dtype, tokens=tokens, width=width)
        *up, down = self.mlp_matrices()
        return [(self._gemm(up[0]), len(up)), (activation, 1), (self._gemm(down), 1)]

    def _gemm(self, matrix: Matrix) -> Gemm:
        return Gemm(dtype=self.dtype, m=self.batch * self.seq_len, n=matrix.outputs, k=matrix.inputs)

    def _collectives_of(self, phase: Phase) -> tuple[Counted, ...]:
        if self.tp == 1 or phase == "backward_weight":
            return ()
        size = self.item_bytes * self.batch * self.seq_len * self.hidden
        # backward has the transpose of each collective, so the list is the same in both directions
        group = Group(self.tp, self.group_nodes)
        of_one_half = (*entering_group(size, group, self.sp), *summed_over_group(size, group, self.sp))
        return of_one_half * 2


@register
class DenseLayer(LayerShape):
    """One decoder layer, with its tensor-parallel collectives if tp > 1 (torch's DTensor over the real group).

    `backward_accumulate` adds to existing gradients, as in every microbatch but the first.
    """

    __slots__ = ()

    NAME: ClassVar[str] = "dense_layer"
    PHASES: ClassVar[tuple[Phase, ...]] = CELL_PHASES


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeLayer(LayerShape):
    """One decoder layer on [batch, 1, hidden]: it writes the new key and value into the cache and attends to all of a sequence."""

    NAME: ClassVar[str] = "decode_layer"
    PHASES: ClassVar[tuple[Phase, ...]] = ("forward",)

    keys: int
    """Keys of each sequence, with the key of the new token."""

    def attention_calls(self) -> list[tuple[Operator, int]]:
        """Projections, and attention over the cache between them."""
        query, key, _, output = self.attention_matrices()
        cached = DecodeAttention(
            dtype=self.dtype,
            batch=self.batch,
            keys=self.keys,
            heads=self.heads // self.tp,
            kv_heads=self.kv_heads // self.tp,
            head_dim=self.head_dim,
        )
        return [(self._gemm(query), 1), (self._gemm(key), 2), (cached, 1), (self._gemm(output), 1)]
