"""The kernels of one step on one GPU, as the calls that training's price lists know, by the factor that corrects them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from predict.model.layer_kinds import LayerKind
from predict.model.parts.attention import Attention, heads_on_rank
from predict.model.parts.mixture import Experts
from predict.prices.kernels.decode_attention import PACKING
from predict.serving.batch import StepBatch
from predict.serving.server import Server
from sampling.arithmetic.expert_rows import experts_with_rows
from sampling.call import Call, Counted
from sampling.cells.matrices import Matrix, products_on_rank
from sampling.collectives.custom_all_reduce import CustomAllReduce
from sampling.collectives.kinds import AllGather, Collective, ReduceScatter
from sampling.errors import ConfigError
from sampling.operators.attention import Attention as PrefillAttention
from sampling.operators.decode_attention import UNPACKED, DecodeAttention
from sampling.operators.elementwise import Gelu, RoPE, SwiGLU
from sampling.operators.experts import UNTUNED as UNTUNED_EXPERTS
from sampling.operators.experts import UNTUNED_WIDTH, GroupedGemm
from sampling.operators.gemm import Gemm
from sampling.operators.norm import RMSNorm

Group = Literal["gemm", "moe", "attention", "all_reduce", "elementwise"]
ACTIVATIONS = "bf16"
"""Dtype of activations, of the head, and of what GPUs exchange."""
EVEN = "power_law_0"
"""Routing in which every expert is equally likely."""


def token_kernels(server: Server, tokens: int) -> dict[Group, list[Counted]]:
    """The kernels whose work depends on the number of tokens alone, all layers together; the head is apart."""
    found: dict[Group, list[Counted]] = {"gemm": [], "moe": [], "all_reduce": [], "elementwise": []}
    for kind, layers in Counter(server.model.kinds()).items():
        for group, call, count in _layer(server, kind, tokens):
            found[group].append(Counted(call=call, phase="forward", count=layers * count))
    if server.tp > 1:
        # the rows of the embedding that are on other GPUs
        found["all_reduce"].append(Counted(call=_all_reduce(server, tokens), phase="forward"))
    return found


def head_kernels(server: Server, requests: int) -> dict[Group, list[Counted]]:
    """The head on each request's last token, and the gathering of its logits."""
    model, tp = server.model, server.tp
    head = Gemm(dtype=ACTIVATIONS, m=requests, n=max(1, model.vocab // tp), k=model.hidden)
    found: dict[Group, list[Counted]] = {"gemm": [Counted(call=head, phase="forward")], "all_reduce": []}
    if tp > 1:
        gather = AllGather(size_bytes=2 * requests * model.vocab, ranks=tp, ranks_per_node=tp)
        found["all_reduce"].append(Counted(call=gather, phase="forward"))
    return found


def decode_attention(server: Server, decodes: int, keys: int) -> list[Counted]:
    """Attention of a step's decodes with so many keys each, all layers together."""
    heads, kv_heads = heads_on_rank(server.model, server.tp)
    call = DecodeAttention(
        dtype=server.placement.kv_precision,
        batch=decodes,
        keys=keys,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=server.model.head_dim,
        kernel="" if server.cluster.gpu.architecture in PACKING else UNPACKED,
    )
    return [
        Counted(call=replace(call, window=window), phase="forward", count=layers)
        for window, layers in _layers_by_window(server).items()
    ]


def prefill_attention(server: Server, tokens: int) -> list[Counted]:
    """Attention of a prompt that is computed in one chunk, all layers together."""
    heads, kv_heads = heads_on_rank(server.model, server.tp)
    call = PrefillAttention(
        dtype=ACTIVATIONS,
        batch=1,
        seq_len=tokens,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=server.model.head_dim,
        causal=True,
    )
    return [
        Counted(call=replace(call, window=window), phase="forward", count=layers)
        for window, layers in _layers_by_window(server).items()
    ]


def step_kernels(server: Server, batch: StepBatch) -> dict[Group, list[Counted]]:
    """The kernels of one step; its decodes read their mean number of keys, and its chunks no keys of earlier ones."""
    chunks = [chunk.tokens for chunk in batch.chunks]
    requests = len(chunks) + len(batch.decodes)
    found = token_kernels(server, sum(chunks) + len(batch.decodes))
    for group, calls in head_kernels(server, requests).items():
        found[group] += calls
    attention = [call for tokens in chunks for call in prefill_attention(server, tokens)]
    if batch.decodes:
        keys = max(1, sum(batch.decodes) // len(batch.decodes))
        attention += decode_attention(server, len(batch.decodes), keys)
    return {**found, "attention": attention}


def _layers_by_window(server: Server) -> Counter[int]:
    """Layers by the keys that a query sees in them, 0 for all."""
    return Counter(server.model.window if kind.mixer == "sliding" else 0 for kind in server.model.kinds())


def _layer(server: Server, kind: LayerKind, tokens: int) -> Iterator[tuple[Group, Call, float]]:
    """Group, call and count of the kernels of one layer."""
    model, tp = server.model, server.tp
    mixer = model.mixer(kind)
    if not isinstance(mixer, Attention):
        raise ConfigError(
            f"model: {model.name} has {mixer.NAME} layers, which a serving step does not model yet; take another model"
        )
    heads, kv_heads = heads_on_rank(model, tp)
    yield from _products(server, mixer.matrices(model), tokens)
    yield "elementwise", RMSNorm(dtype=ACTIVATIONS, tokens=tokens, hidden=model.hidden), model.norms_a_layer
    rope = RoPE(dtype=ACTIVATIONS, batch=1, seq_len=tokens, heads=heads + kv_heads, head_dim=model.head_dim)
    yield "elementwise", rope, 1
    feed_forward = model.feed_forward(kind)
    if isinstance(feed_forward, Experts):
        yield from _mixture(server, feed_forward, tokens)
    else:
        yield from _products(server, feed_forward.matrices(model), tokens)
        activation = SwiGLU if model.gated else Gelu
        yield "elementwise", activation(dtype=ACTIVATIONS, tokens=tokens, width=max(1, model.ffn // tp)), 1
    if tp > 1:
        yield "all_reduce", _all_reduce(server, tokens), 2


def _products(server: Server, matrices: tuple[Matrix, ...], tokens: int) -> Iterator[tuple[Group, Call, float]]:
    for outputs, inputs in products_on_rank(matrices, server.tp).values():
        yield "gemm", Gemm(dtype=server.placement.precision, m=tokens, n=outputs, k=inputs), 1


def _mixture(server: Server, experts: Experts, tokens: int) -> Iterator[tuple[Group, Call, float]]:
    """Router and shared experts on every GPU; of the others each GPU has a slice of all, or whole ones of its own."""
    model, tp, dp = server.model, server.tp, server.placement.dp
    yield from _products(server, experts.matrices(model), tokens)
    everywhere = tokens * dp if server.ep > 1 else tokens
    rows = max(1, round(everywhere * experts.topk / server.ep))
    held = max(1, experts.count // server.ep)
    busy = max(1, round(experts_with_rows(held, rows, EVEN)))
    width = expert_width(server, experts)
    for outputs, inputs in products_on_rank(experts.expert_matrices(model), 1 if server.ep > 1 else tp).values():
        product = GroupedGemm(
            dtype=server.placement.precision,
            groups=busy,
            rows=max(rows, busy),
            n=outputs,
            k=inputs,
            distribution=EVEN,
            kernel=UNTUNED_EXPERTS if width >= UNTUNED_WIDTH else "",
        )
        yield "moe", product, 1
    yield "elementwise", SwiGLU(dtype=ACTIVATIONS, tokens=rows, width=width), 1
    if server.ep > 1 and dp > 1:
        size = 2 * everywhere * model.hidden
        for kind in (AllGather, ReduceScatter):
            yield "all_reduce", kind(size_bytes=size, ranks=dp, ranks_per_node=dp), 1


def expert_width(server: Server, experts: Experts) -> int:
    """Inner width of an expert on one GPU."""
    return experts.ffn if server.ep > 1 else max(1, experts.ffn // server.tp)


def _all_reduce(server: Server, tokens: int) -> Collective:
    return CustomAllReduce(size_bytes=2 * tokens * server.model.hidden, ranks=server.tp, ranks_per_node=server.tp)
