"""The additive formula with its faults mended: the same five features, from the model's own matrices.

- pairs are those of the causal mask, by each chunk's place in its prompt;
- heads have their true size, and each GPU keeps at least one of keys and values;
- experts read are those that at least one token is expected to choose, N·(1 − (1 − k/N)^tokens) of N, with even
  routing; the tokens that pad decodes to the next CUDA graph choose some too;
- the head, routers, shared experts and the cache that later chunks read are counted;
- with expert parallelism a GPU reads whole experts, its share of those that the tokens of all replicas choose; wide
  ones are read by slower kernels;
- where an indexer picks keys, prompts and decodes attend to those alone, and score all;
- kernels that do not share keys among heads read them from the cache once for each head.
"""

from dataclasses import dataclass

import numpy as np

from predict.layers.served import CACHE_BYTES
from predict.model.spec import Experts, LayerKind
from predict.prices.kernels.attention import CACHE_BYTES_PER_US
from predict.prices.kernels.products import GROUPED_START_US, MEMORY_SHARE, UNTUNED_SHARE, UNTUNED_START_US
from predict.serving.batch import BatchSums, computed_tokens
from predict.serving.server import ServedMixer, Server, served_mixers
from regressors.features.arrays import Floats
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.experts import UNTUNED_WIDTH


def features_us(server: Server, sums: BatchSums) -> Floats:
    """The five features of each batch, shape (batches, 5)."""
    model, gpu = server.model, server.cluster.gpu
    per_token = _flops_per_token(server)
    peak = gpu.peak_flops_per_us(server.products.dtype)
    head = model.hidden * model.vocab / server.tp
    # the head takes each request's last token alone, and its drafts, in the dtype of activations whatever the dtype of the layers
    head_us = 2 * head * sums.scored / gpu.peak_flops_per_us(server.activations)
    moved = head * DTYPE_BYTES[server.activations] + _cached_bytes(server, sums)
    computed = computed_tokens(sums, server.engine.replayed_sizes)
    memory_us = _weights_us(server, computed) + moved / gpu.bytes_per_us() + _keys_us(server, sums)
    return np.column_stack(
        (
            (per_token * sums.prefill_tokens + _prefill_pair_flops(server, sums)) / peak,
            (per_token * sums.decode_tokens + _decode_pair_flops(server, sums)) / peak + head_us,
            memory_us,
            np.full_like(sums.tokens, model.layers),
            sums.requests,
        )
    )


def distinct_experts(experts: Experts, tokens: Floats) -> Floats:
    """Expected experts that at least one of the tokens chooses, with even routing."""
    chosen: Floats = experts.count * (1 - (1 - experts.topk / experts.count) ** tokens)
    return chosen


def _flops_per_token(server: Server) -> float:
    """FLOPs of one token's products on one GPU in all layers."""
    model = server.model

    def of(kind: LayerKind) -> float:
        elements = sum(
            matrix.elements for part in (model.mixer(kind), model.feed_forward(kind)) for matrix in part.matrices(model)
        )
        if kind.sparse and model.experts:
            elements += model.experts.topk * _expert_elements(server, model.experts)
        return elements

    return 2 / server.tp * sum(count * of(kind) for kind, count in model.kind_counts().items())


def _weights_us(server: Server, tokens: Floats) -> Floats:
    """µs at the stated bandwidth of the layers' weights that one GPU reads for so many tokens. Wide experts take the longer by what
    kernels without tiles tuned for them lose."""
    model, total = server.model, np.zeros_like(tokens)
    bytes_per_us = server.cluster.gpu.bytes_per_us()
    for kind, count in model.kind_counts().items():
        matrices = (*model.mixer(kind).matrices(model), *model.feed_forward(kind).matrices(model))
        elements = sum(matrix.on_rank(server.tp).elements for matrix in matrices)
        total += count * elements * server.products.weight_bytes / bytes_per_us
        if not (kind.sparse and model.experts):
            continue
        expert_us = _expert_elements(server, model.experts) * server.expert_products.weight_bytes / bytes_per_us
        everywhere = tokens * server.placement.dp
        read = distinct_experts(model.experts, everywhere) if server.expert_alignment == 1 else model.experts.count
        read_us = read * expert_us / server.expert_ranks
        if model.experts.sliced_ffn(server.expert_ranks // server.ep) >= UNTUNED_WIDTH:
            read_us = read_us * MEMORY_SHARE / UNTUNED_SHARE + 2 * (UNTUNED_START_US - GROUPED_START_US)
        total += count * read_us
    return total


def _prefill_pair_flops(server: Server, sums: BatchSums) -> Floats:
    """FLOPs of the chunks' attention, and of the recurrences, which take a third of what forward and backward do."""
    model = server.model
    total = np.zeros_like(sums.tokens)
    for each in served_mixers(server):
        attended = sums.window_pairs if each.mixer.keys_seen(each.share) else sums.prefill_pairs
        pairs = (
            each.mixer.score_width(model) / server.tp * attended + each.mixer.index_width(model) * sums.prefill_pairs
        )
        recurrence = each.mixer.recurrence_flops(model) / server.tp / 3
        total += each.layers * (2 * pairs + recurrence * sums.prefill_tokens)
    return total


def _decode_pair_flops(server: Server, sums: BatchSums) -> Floats:
    """FLOPs of the decodes' attention, and of the recurrences."""
    total = np.zeros_like(sums.tokens)
    for each in served_mixers(server):
        recurrence = each.mixer.recurrence_flops(server.model) / server.tp / 3
        width = each.mixer.decode_score_width(each.share)
        seen = width * _seen(each, sums) + each.mixer.index_width(server.model) * sums.decode_context
        total += each.layers * (2 * seen * sums.queries + recurrence * sums.decode_tokens)
    return total


def _seen(each: ServedMixer, sums: BatchSums) -> Floats:
    """Keys that the decodes attend to in one layer, all together."""
    most = each.mixer.keys_seen(each.share)
    return np.minimum(sums.window_keys, most * sums.decodes) if most else sums.decode_context


def _cached_bytes(server: Server, sums: BatchSums) -> Floats:
    """Bytes of the keys and values that are written, and that chunks read, and of the states that decodes read and write."""
    total = np.zeros_like(sums.tokens)
    for each in served_mixers(server):
        cache = each.mixer.cache(each.share)
        read = sums.window_context if each.share.most_seen else sums.prefill_context
        moved = cache.token_bytes * (sums.tokens + read) + 2 * cache.sequence_bytes * sums.decodes
        total += each.layers * moved
    return total


def _keys_us(server: Server, sums: BatchSums) -> Floats:
    """µs in which the decodes read keys and values: from memory, or where the kernel reads them for each head by itself, from the cache
    if that takes longer."""
    total = np.zeros_like(sums.tokens)
    for each in served_mixers(server):
        index_bytes, reads = each.mixer.index_bytes(each.share), each.mixer.reads_of_key(each.share)
        token_bytes = each.mixer.cache(each.share).token_bytes - index_bytes
        key_us = token_bytes / server.cluster.gpu.bytes_per_us()
        if reads > 1:
            key_us = max(key_us, token_bytes * reads / CACHE_BYTES_PER_US)
        index_us = index_bytes / server.cluster.gpu.bytes_per_us() * sums.decode_context
        total += each.layers * (key_us * _seen(each, sums) + index_us)
    return total


def _expert_elements(server: Server, experts: Experts) -> int:
    """Elements of one whole expert."""
    return sum(matrix.elements for matrix in experts.expert_matrices(server.model))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sizes:
    """The formula's view of a model: every layer alike, heads of hidden / heads."""

    projections: int
    """Elements of the query, key, value and output matrices of a layer: d(2d_q + 2d_kv)."""
    query_width: int
    kv_width: float
    expert: int
    """Elements of one expert, or of the dense MLP: 3·d·d_ff."""
    experts: int
    topk: int


def published_features_us(server: Server, sums: BatchSums) -> Floats:
    """The five features in µs of each batch, shape (batches, 5), of the additive formula as published (inference-sim issue "Unified
    additive step-time formula"):

        step = β₁·prefill compute + β₂·decode compute + β₃·(weights + keys and values) + β₄·layers + β₅·requests

    Its faults are kept here, and mended in `features_us`:
    - attention's pairs count the whole prompt for each token, 3 times those of the causal mask in one shot;
    - a head's size is hidden / heads;
    - keys and values of fewer heads than GPUs are divided all the same;
    - experts read are min(experts, tokens · topk), where some tokens choose the same;
    - the head, the router, shared experts and the cache that a later chunk reads cost nothing;
    - experts are always sliced, as without expert parallelism.
    """
    model, gpu = server.model, server.cluster.gpu
    sizes = _sizes(server)
    flops = server.tp * gpu.peak_flops_per_us(server.products.dtype) / model.layers
    weight_bytes, kv_bytes = server.expert_products.weight_bytes, CACHE_BYTES[server.placement.kv_precision]

    def compute_us(tokens: Floats, pairs: Floats) -> Floats:
        products = 2 * tokens * sizes.projections + 2 * tokens * sizes.topk * sizes.expert
        return (products + 4 * sizes.query_width * pairs) / flops

    read = np.minimum(sizes.experts, np.maximum(sizes.topk, sums.tokens * sizes.topk))
    weights = (sizes.projections + read * sizes.expert) * weight_bytes / server.tp
    cache = 2 * sizes.kv_width / server.tp * kv_bytes * (sums.tokens + sums.decode_context)
    return np.column_stack(
        (
            compute_us(sums.prefill_tokens, sums.whole_prompt_pairs),
            compute_us(sums.decode_tokens, sums.decode_context * sums.queries),
            model.layers * (weights + cache) / gpu.bytes_per_us(),
            np.full_like(sums.tokens, model.layers),
            sums.requests,
        )
    )


def _sizes(server: Server) -> _Sizes:
    model = server.model
    head = model.hidden / model.heads
    kv_width = model.kv_heads * head
    experts = model.experts
    return _Sizes(
        projections=round(model.hidden * (2 * model.hidden + 2 * kv_width)),
        query_width=model.hidden,
        kv_width=kv_width,
        expert=3 * model.hidden * (experts.ffn if experts else model.ffn),
        experts=experts.count if experts else 1,
        topk=experts.topk if experts else 1,
    )
