"""Turns rows of estimate-train-time's tables into calls. Tokens are l·b; dtype is fp16."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from sampling.call import Call
from sampling.collectives.kinds import AllGather, AllReduce, SendRecv
from sampling.operators.attention import Attention
from sampling.operators.elementwise import Gelu, ResidualAdd, RoPE
from sampling.operators.gemm import BatchedGemm, Gemm
from sampling.operators.norm import LayerNorm, RMSNorm
from sampling.operators.optimizer import AdamW
from sampling.operators.softmax import CausalSoftmax, MaskFill, Softmax
from sampling.operators.vocabulary import CrossEntropy, Embedding

DTYPE = "fp16"
ITEM_BYTES = 2
VOCABULARY = 50_257
"""GPT-2's, padded so that each of mp ranks holds a multiple of 128 rows."""
TENSORS_PER_ENCODER = 12
"""Four linear layers and two layer norms, a weight and a bias each."""


class Shape(NamedTuple):
    """The columns of one row; 0 where its table has no such column, and mp 1."""

    mp: int
    batch: int
    heads: int
    seq_len: int
    dim: int
    encoders: int
    parameters: int
    tensors: int

    @property
    def tokens(self) -> int:
        return self.batch * self.seq_len

    @property
    def vocab(self) -> int:
        return math.ceil(VOCABULARY / (128 * self.mp)) * 128

    @property
    def matrices(self) -> int:
        return self.batch * self.heads // self.mp

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


def _linear(out: Callable[[Shape], int], into: Callable[[Shape], int]) -> Callable[[Shape], Call]:
    return lambda s: Gemm(dtype=DTYPE, m=s.tokens, n=out(s), k=into(s))


def _embedding(s: Shape) -> Call:
    return Embedding(dtype=DTYPE, batch=s.batch, seq_len=s.seq_len, vocab=s.vocab, hidden=s.dim, tp=1, sp=False)


def _attention(s: Shape) -> Call:
    heads = s.heads // s.mp
    return Attention(
        dtype=DTYPE, batch=s.batch, seq_len=s.seq_len, heads=heads, kv_heads=heads, head_dim=s.head_dim, causal=True
    )


def _rope(s: Shape) -> Call:
    return RoPE(dtype=DTYPE, batch=s.batch, seq_len=s.seq_len, heads=s.heads // s.mp, head_dim=s.head_dim)


def _scores(s: Shape) -> Call:
    return BatchedGemm(dtype=DTYPE, batch=s.matrices, m=s.seq_len, n=s.seq_len, k=s.head_dim, adds=True)


def _values(s: Shape) -> Call:
    return BatchedGemm(dtype=DTYPE, batch=s.matrices, m=s.seq_len, n=s.head_dim, k=s.seq_len, adds=False)


def _encoder_parameters(s: Shape) -> int:
    weights, sharded_biases, whole_biases_and_norms = 12 * s.dim**2 // s.mp, 7 * s.dim // s.mp, 6 * s.dim
    return weights + sharded_biases + whole_biases_and_norms


def _stage(*, vocabulary_matrices: int, final_norms: int) -> Callable[[Shape], Call]:
    """The optimizer step of a pipeline stage's `encoders` layers and what stands at the model's ends.

    Counted like this, a whole model gives the `params` and `param_tensors` that the table of whole models states.
    """

    def call(s: Shape) -> Call:
        at_ends = vocabulary_matrices * s.vocab * s.dim + final_norms * 2 * s.dim
        return AdamW(
            dtype=DTYPE,
            parameters=s.encoders * _encoder_parameters(s) + at_ends,
            tensors=s.encoders * TENSORS_PER_ENCODER + vocabulary_matrices + final_norms * 2,
            tp=1,
        )

    return call


def _model_optimizer(s: Shape) -> Call:
    if s.parameters and s.tensors:
        return AdamW(dtype=DTYPE, parameters=s.parameters, tensors=s.tensors, tp=1)
    return _stage(vocabulary_matrices=2, final_norms=1)(s)


TOKENS_DIM = ("b", "l", "dim")
MP_TOKENS_DIM = ("mp", *TOKENS_DIM)
PER_HEAD = ("mp", "b", "h", "l", "dim")
SCORES = ("mp", "b", "h", "l")
STAGE = ("mp", "dim", "encoders")

OPERATORS: dict[str, tuple[Callable[[Shape], Call], tuple[str, ...]]] = {
    "linear1": (_linear(lambda s: 3 * s.dim // s.mp, lambda s: s.dim), MP_TOKENS_DIM),
    "linear2": (_linear(lambda s: s.dim, lambda s: s.dim // s.mp), MP_TOKENS_DIM),
    "linear3": (_linear(lambda s: 4 * s.dim // s.mp, lambda s: s.dim), MP_TOKENS_DIM),
    "linear4": (_linear(lambda s: s.dim, lambda s: 4 * s.dim // s.mp), MP_TOKENS_DIM),
    "linear_final": (_linear(lambda s: s.vocab, lambda s: s.dim), MP_TOKENS_DIM),
    "embedding": (_embedding, MP_TOKENS_DIM),
    "baddbmm": (_scores, PER_HEAD),
    "bmm": (_values, PER_HEAD),
    "flash_atten": (_attention, PER_HEAD),
    "RoPE": (_rope, PER_HEAD),
    "fillmask": (lambda s: MaskFill(dtype=DTYPE, matrices=s.matrices, seq_len=s.seq_len), SCORES),
    "softmax": (lambda s: Softmax(dtype=DTYPE, matrices=s.matrices, seq_len=s.seq_len), SCORES),
    "ScaledUpperTriangMaskedSoftmax": (
        lambda s: CausalSoftmax(dtype=DTYPE, matrices=s.matrices, seq_len=s.seq_len),
        SCORES,
    ),
    "RMSlayernorm": (lambda s: RMSNorm(dtype=DTYPE, tokens=s.tokens, hidden=s.dim), TOKENS_DIM),
    "layernorm": (lambda s: LayerNorm(dtype=DTYPE, tokens=s.tokens, hidden=s.dim), TOKENS_DIM),
    "res_add": (lambda s: ResidualAdd(dtype=DTYPE, tokens=s.tokens, hidden=s.dim), TOKENS_DIM),
    "gelu": (lambda s: Gelu(dtype=DTYPE, tokens=s.tokens, width=4 * s.dim // s.mp), MP_TOKENS_DIM),
    "parallel_cross_entropy_128": (
        lambda s: CrossEntropy(dtype=DTYPE, tokens=s.tokens, vocab=s.vocab),
        ("mp", "b", "l"),
    ),
    "firstStage_optimizer": (_stage(vocabulary_matrices=1, final_norms=0), STAGE),
    "middleStage_optimizer": (_stage(vocabulary_matrices=0, final_norms=0), STAGE),
    "lastStage_optimizer": (_stage(vocabulary_matrices=1, final_norms=1), STAGE),
    "optimizer": (_model_optimizer, ("dim", "encoders")),
}


def _all_gather(elements: int, nodes: int, per_node: int) -> Call:
    # The count is one rank's shard: only so does the A100's all-gather over 2, 4 and 8 nodes move the 1.15-1.2 GB/s on the
    # wire that its all-reduce and send-recv move; read as the gathered whole it would be 0.6, 0.3 and 0.15.
    ranks = nodes * per_node
    return AllGather(size_bytes=ITEM_BYTES * elements * ranks, ranks=ranks, ranks_per_node=per_node)


def _all_reduce(elements: int, nodes: int, per_node: int) -> Call:
    return AllReduce(size_bytes=ITEM_BYTES * elements, ranks=nodes * per_node, ranks_per_node=per_node)


def _send_recv(elements: int, nodes: int, per_node: int) -> Call:
    return SendRecv(size_bytes=ITEM_BYTES * elements, ranks=nodes * per_node, ranks_per_node=per_node)


COLLECTIVES: dict[str, Callable[[int, int, int], Call]] = {
    "allgather": _all_gather,
    "allreduce": _all_reduce,
    "p2p": _send_recv,
}
"""Collectives by the start of a table's name."""
