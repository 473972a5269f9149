"""The kernels of one step on one GPU, as the calls that training's price lists know, by the factor that corrects them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from predict.model.spec import Experts, LayerKind
from predict.serving.batch import StepBatch
from predict.serving.kernels.grouped import Group, GroupedCall, products
from predict.serving.mixers.served import Kept, served_mixers
from predict.serving.server import Server
from sampling.arithmetic.expert_rows import experts_with_rows
from sampling.call import Counted
from sampling.cells.matrices import products_on_rank
from sampling.collectives.custom_all_reduce import CustomAllReduce
from sampling.collectives.kinds import AllGather, AllReduce, Collective, ReduceScatter
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.elementwise import Gelu, SwiGLU
from sampling.operators.experts import UNTUNED as UNTUNED_EXPERTS
from sampling.operators.experts import UNTUNED_WIDTH, GroupedGemm
from sampling.operators.gemm import Gemm
from sampling.operators.norm import RMSNorm

EVEN = "power_law_0"
"""Routing in which every expert is equally likely."""


def token_kernels(server: Server, tokens: int) -> dict[Group, list[Counted]]:
    """The kernels whose work depends on the number of tokens alone, all layers together; the head is apart."""
    found: dict[Group, list[Counted]] = {"gemm": [], "moe": [], "all_reduce": [], "elementwise": []}
    parts = [(mixer.layers, mixer.token_calls(tokens)) for mixer in served_mixers(server)]
    parts += [(layers, _layer(server, kind, tokens)) for kind, layers in Counter(server.model.kinds()).items()]
    for layers, calls in parts:
        for group, call, count in calls:
            found[group].append(Counted(call=call, phase="forward", count=layers * count))
    if server.tp > 1:
        # the rows of the embedding that are on other GPUs
        found["all_reduce"].append(Counted(call=_all_reduce(server, tokens), phase="forward"))
    return found


def head_kernels(server: Server, requests: int) -> dict[Group, list[Counted]]:
    """The head on each request's last token, and the gathering of its logits."""
    model, tp = server.model, server.tp
    head = Gemm(dtype=server.activations, m=requests, n=max(1, model.vocab // tp), k=model.hidden)
    found: dict[Group, list[Counted]] = {"gemm": [Counted(call=head, phase="forward")], "all_reduce": []}
    if tp > 1:
        gather = AllGather(
            size_bytes=DTYPE_BYTES[server.activations] * requests * model.vocab,
            ranks=tp,
            ranks_per_node=_per_node(server),
        )
        found["all_reduce"].append(Counted(call=gather, phase="forward"))
    return found


def decode_attention(server: Server, decodes: int, keys: int, *, kept: Kept | None = None) -> list[Counted]:
    """The calls in which each of `decodes` tokens attends to `keys` keys, in all layers, or in those alone that keep the `kept` part of a
    sequence."""
    return [
        Counted(call=call, phase="forward", count=mixer.layers)
        for mixer in served_mixers(server)
        if kept in (None, mixer.cache.keeps)
        for call in mixer.decode_calls(decodes, keys)
    ]


def prefill_attention(server: Server, tokens: int, *, kept: Kept | None = None) -> list[Counted]:
    """The same of a prompt that is computed in one chunk."""
    return [
        Counted(call=call, phase="forward", count=mixer.layers)
        for mixer in served_mixers(server)
        if kept in (None, mixer.cache.keeps)
        for call in mixer.prefill_calls(tokens)
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


def _layer(server: Server, kind: LayerKind, tokens: int) -> Iterator[GroupedCall]:
    """The norms and the feed-forward of one layer, and what its GPUs exchange."""
    model, tp = server.model, server.tp
    yield "elementwise", RMSNorm(dtype=server.activations, tokens=tokens, hidden=model.hidden), model.norms_a_layer
    feed_forward = model.feed_forward(kind)
    if isinstance(feed_forward, Experts):
        yield from _mixture(server, feed_forward, tokens)
    else:
        yield from products(server, feed_forward.matrices(model), tokens)
        activation = SwiGLU if model.gated else Gelu
        yield "elementwise", activation(dtype=server.activations, tokens=tokens, width=max(1, model.ffn // tp)), 1
    if tp > 1:
        yield "all_reduce", _all_reduce(server, tokens), 2


def _mixture(server: Server, experts: Experts, tokens: int) -> Iterator[GroupedCall]:
    """Router and shared experts on every GPU; of the others each GPU has a slice of all, or whole ones of its own, for the tokens of all
    replicas."""
    model, tp, dp = server.model, server.tp, server.placement.dp
    yield from products(server, experts.matrices(model), tokens)
    everywhere = tokens * dp
    rows = max(1, round(everywhere * experts.topk / server.ep))
    held = max(1, experts.count // server.ep)
    busy = max(1, round(experts_with_rows(held, rows, EVEN)))
    width, slices = expert_width(server, experts), server.expert_ranks // server.ep
    for outputs, inputs in products_on_rank(experts.expert_matrices(model), slices).values():
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
    yield "elementwise", SwiGLU(dtype=server.activations, tokens=rows, width=width), 1
    if dp > 1:
        size = DTYPE_BYTES[server.activations] * everywhere * model.hidden
        # GPUs of a tensor-parallel group are neighbours, and each exchanges with its counterparts of the other replicas
        per_node = min(dp, max(1, server.cluster.gpus_per_node // tp))
        for kind in (AllGather, ReduceScatter):
            yield "all_reduce", kind(size_bytes=size, ranks=dp, ranks_per_node=per_node), 1


def expert_width(server: Server, experts: Experts) -> int:
    """Inner width of an expert on one GPU."""
    return max(1, experts.ffn // (server.expert_ranks // server.ep))


def _all_reduce(server: Server, tokens: int) -> Collective:
    """The engine's own kernel among the GPUs of a node; the communication library's between nodes, and on CPUs."""
    own = server.tp == _per_node(server) and server.cluster.gpu.kind != "cpu"
    kind = CustomAllReduce if own else AllReduce
    return kind(
        size_bytes=DTYPE_BYTES[server.activations] * tokens * server.model.hidden,
        ranks=server.tp,
        ranks_per_node=_per_node(server),
    )


def _per_node(server: Server) -> int:
    """Tensor-parallel ranks in one node."""
    return min(server.tp, server.cluster.gpus_per_node)
