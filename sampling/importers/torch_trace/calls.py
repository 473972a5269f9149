"""Turns torch operators of a trace into calls, by their names, their inputs' shapes and their constants."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sampling.call import Call
from sampling.collectives.kinds import AllGather, AllReduce, AllToAll, Collective, ReduceScatter, SendRecv
from sampling.importers.torch_trace.events import Op
from sampling.operators.attention import Attention
from sampling.operators.gemm import BatchedGemm, Gemm
from sampling.operators.memory_bound import Gelu, LayerNorm, RMSNorm, Softmax
from sampling.operators.vocabulary import CrossEntropy, Embedding

DTYPES = {"float": "fp32", "c10::BFloat16": "bf16", "c10::Half": "fp16"}
ELEMENT_BYTES = {
    "Byte": 1,
    "Char": 1,
    "Bool": 1,
    "Half": 2,
    "BFloat16": 2,
    "Float": 4,
    "Int": 4,
    "Double": 8,
    "Long": 8,
}


def call_of(op: Op) -> Call | None:
    """The call of an operator; None if it is not one of ours, or the trace lacks its shapes."""
    make = CALLS.get(op.name)
    if make is None or not op.types or op.types[0] not in DTYPES:
        return None
    try:
        return make(op, DTYPES[op.types[0]])
    except (IndexError, TypeError, ValueError):  # other shapes than the operator's usual ones
        return None


def _tokens(shape: list[int]) -> int:
    return math.prod(shape[:-1])


def _product(first: int) -> Callable[[Op, str], Call]:
    def call(op: Op, dtype: str) -> Call:
        (m, k), (_, n) = op.dims[first], op.dims[first + 1]
        return Gemm(dtype=dtype, m=m, n=n, k=k)

    return call


def _batched(first: int) -> Callable[[Op, str], Call]:
    def call(op: Op, dtype: str) -> Call:
        (batch, m, k), (_, _, n) = op.dims[first], op.dims[first + 1]
        return BatchedGemm(dtype=dtype, batch=batch, m=m, n=n, k=k, adds=first == 1)

    return call


def _linear(op: Op, dtype: str) -> Call:
    x, (n, k) = op.dims[0], op.dims[1]
    return Gemm(dtype=dtype, m=_tokens(x), n=n, k=k)


def _attention(causal_at: int) -> Callable[[Op, str], Call | None]:
    """Attention of an operator whose argument number `causal_at` is is_causal."""

    def call(op: Op, dtype: str) -> Call | None:
        (batch, heads, seq_len, head_dim), (_, kv_heads, keys, _), (*_, value_dim) = op.dims[:3]
        if keys != seq_len:
            return None
        return Attention(
            dtype=dtype,
            batch=batch,
            seq_len=seq_len,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            causal=op.concrete[causal_at] in ("True", "1"),
            value_dim=0 if value_dim == head_dim else value_dim,
        )

    return call


def _embedding(op: Op, dtype: str) -> Call:
    (vocab, hidden), ids = op.dims[:2]
    batch, seq_len = (1, *ids)[-2:]
    return Embedding(dtype=dtype, batch=batch, seq_len=seq_len, vocab=vocab, hidden=hidden, tp=1, sp=False)


def _softmax(op: Op, dtype: str) -> Call | None:
    *outer, rows, columns = op.dims[0]
    return Softmax(dtype=dtype, matrices=math.prod(outer), seq_len=rows) if rows == columns else None


def _cross_entropy(op: Op, dtype: str) -> Call:
    tokens, vocab = op.dims[0]
    return CrossEntropy(dtype=dtype, tokens=tokens, vocab=vocab)


def _norm(kind: type[LayerNorm] | type[RMSNorm]) -> Callable[[Op, str], Call]:
    return lambda op, dtype: kind(dtype=dtype, tokens=_tokens(op.dims[0]), hidden=op.dims[0][-1])


def _gelu(op: Op, dtype: str) -> Call:
    return Gelu(dtype=dtype, tokens=_tokens(op.dims[0]), width=op.dims[0][-1])


CALLS: Mapping[str, Callable[[Op, str], Call | None]] = {
    "aten::mm": _product(0),
    "aten::addmm": _product(1),
    "aten::_addmm_activation": _product(1),
    "aten::linear": _linear,
    "aten::bmm": _batched(0),
    "aten::baddbmm": _batched(1),
    "aten::_scaled_dot_product_flash_attention": _attention(4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention(4),
    "aten::_scaled_dot_product_efficient_attention": _attention(6),
    "aten::_scaled_dot_product_cudnn_attention": _attention(6),
    "aten::layer_norm": _norm(LayerNorm),
    "aten::native_layer_norm": _norm(LayerNorm),
    "aten::rms_norm": _norm(RMSNorm),
    "aten::_fused_rms_norm": _norm(RMSNorm),
    "aten::gelu": _gelu,
    "aten::embedding": _embedding,
    "aten::_softmax": _softmax,
    "aten::cross_entropy_loss": _cross_entropy,
}
"""Calls by operator; if one runs another, the inner one counts."""

WHOLE_BUFFER: Mapping[str, tuple[type[Collective], str]] = {
    "allreduce": (AllReduce, "In msg nelems"),
    "allgather": (AllGather, "Out msg nelems"),
    "reducescatter": (ReduceScatter, "In msg nelems"),
    "alltoall": (AllToAll, "In msg nelems"),
    "send": (SendRecv, "In msg nelems"),
}
"""Collectives by the start of their name in the trace, with the argument that counts the elements of `size_bytes`."""


def collective_of(arguments: Mapping[str, Any], ranks_per_node: int) -> Collective | None:
    """The collective in the arguments of a kernel or operator, written by the process group; None if it is not one of ours."""
    name = re.sub(r"[^a-z]", "", str(arguments.get("Collective name", "")).lower()).removesuffix("base")
    found = next((WHOLE_BUFFER[kind] for kind in WHOLE_BUFFER if name.startswith(kind)), None)
    item_bytes = ELEMENT_BYTES.get(str(arguments.get("dtype")))
    ranks = int(arguments.get("Group size", 0))
    if found is None or item_bytes is None or ranks < 2:
        return None
    kind, count = found
    size_bytes = int(arguments[count]) * item_bytes
    if not size_bytes:
        return None
    together = _most_on_a_node(str(arguments.get("Process Group Ranks", "")), ranks, ranks_per_node)
    return kind(size_bytes=size_bytes, ranks=ranks, ranks_per_node=together)


def _most_on_a_node(listed: str, ranks: int, ranks_per_node: int) -> int:
    # a long list ends in "...", and then the group is taken to be neighbours
    members = [int(rank) for rank in re.findall(r"\d+", listed)]
    if len(members) != ranks:
        return min(ranks, ranks_per_node)
    nodes = [rank // ranks_per_node for rank in members]
    return max(nodes.count(node) for node in nodes)


def calls_and_owners(ops: Iterable[Op]) -> tuple[dict[Op, Call], dict[Op, Op]]:
    """The operators that are calls, and for each operator the call or autograd node that its time belongs to.

    A forward that recomputation runs inside an autograd node has sequence numbers of its own, which the node's operators lack.
    """
    calls: dict[Op, Call] = {}
    owners: dict[Op, Op] = {}
    for op in ops:
        above = owners.get(op.parent) if op.parent is not None else None
        if above is not None and above.node and not _is_recomputed(op):
            owners[op] = above
        elif op.node:
            owners[op] = op
        elif (call := call_of(op)) is not None:
            if above is not None:
                calls.pop(above, None)
            calls[op], owners[op] = call, op
        elif above is not None and not above.node:
            owners[op] = above
    return calls, owners


def _is_recomputed(op: Op) -> bool:
    """Whether an operator below an autograd node belongs to a forward; the node itself, by its short name, bears the node's number."""
    return op.name.startswith("aten::") and "Sequence number" in op.arguments
