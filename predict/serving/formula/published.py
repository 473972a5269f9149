"""The additive formula as published: five features in µs whose weighted sum is a step (inference-sim issue "Unified additive
step-time formula").

    step = β₁·prefill compute + β₂·decode compute + β₃·(weights + keys and values) + β₄·layers + β₅·requests

Its faults are kept here, and mended in `predict.serving.formula.mended`:
- attention's pairs count the whole prompt for each token, 3 times those of the causal mask in one shot;
- a head's size is hidden / heads;
- keys and values of fewer heads than GPUs are divided all the same;
- experts read are min(experts, tokens · topk), where some tokens choose the same;
- the head, the router, shared experts and the cache that a later chunk reads cost nothing;
- experts are always sliced, as without expert parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predict.serving.batch import BatchSums, Floats
from predict.serving.server import Server
from sampling.hardware.cluster import DTYPE_BYTES


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


def features_us(server: Server, sums: BatchSums) -> Floats:
    """The five features of each batch, shape (batches, 5)."""
    model, gpu = server.model, server.cluster.gpu
    sizes = _sizes(server)
    flops = server.tp * gpu.peak_flops_per_us(server.placement.precision) / model.layers
    weight_bytes, kv_bytes = server.weight_bytes, DTYPE_BYTES[server.placement.kv_precision]

    def compute_us(tokens: Floats, pairs: Floats) -> Floats:
        products = 2 * tokens * sizes.projections + 2 * tokens * sizes.topk * sizes.expert
        return (products + 4 * sizes.query_width * pairs) / flops

    read = np.minimum(sizes.experts, np.maximum(sizes.topk, sums.tokens * sizes.topk))
    weights = (sizes.projections + read * sizes.expert) * weight_bytes / server.tp
    cache = 2 * sizes.kv_width / server.tp * kv_bytes * (sums.tokens + sums.decode_context)
    return np.column_stack(
        (
            compute_us(sums.prefill_tokens, sums.whole_prompt_pairs),
            compute_us(sums.decodes, sums.decode_context),
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
