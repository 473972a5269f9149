"""A mixture of experts: router, exchange of tokens, grouped products, combination, and shared experts beside them."""

from __future__ import annotations

from typing import Any

from predict.model.parts.mixture import Experts
from predict.model.spec import LayerKind
from predict.rank.blocks import Calls
from predict.rank.module import Exchange, Module, Works
from predict.rank.share import RankShare
from predict.rank.tensor_parallel import entering, leaving
from predict.run.execution import IN_TURN
from predict.workload.layers.dense import mlp_works
from predict.workload.layers.expert_load import busiest_rank, distribution_on_rank
from predict.workload.layers.token_copies import expected_places
from sampling.arithmetic.operator import Operator
from sampling.cells.matrices import products_on_rank
from sampling.operators.elementwise import Gelu, ResidualAdd, SwiGLU
from sampling.operators.experts import IN_GRAPH, PER_EXPERT, GroupedGemm
from sampling.operators.routing import Permute, Router, Unpermute
from sampling.operators.streaming import Stream

SHARED = "shared_experts"
BIAS_BYTES = 32
"""Bytes that adding a bias moves per element of the rows: 28 in forward (written 4, summed 2 + 4 + 4, concatenated 8, cast 4 + 2) and 36
in backward (cast 12, gradients of bias and routing weight 8 + 4 and 8 + 4); their mean."""
SHARE_BESIDE_MICROBATCH = 0.8
"""Share of another microbatch's work behind which tokens can travel; the two streams have to wait for each other at times. Assumed."""


def modules(rank: RankShare, kind: LayerKind, experts: Experts) -> tuple[Module, ...]:
    """Router, dispatch, grouped products, combination (Fedus et al., arXiv 2101.03961; dropless: arXiv 2211.15841).

    A rank routes its own rows; after the exchange it holds as many on average, gathered over etp.
    """
    plan, hidden, dtype = rank.plan, rank.model.hidden, rank.dtype
    # with tp > 1 each rank routes its share of the sequence, as Megatron asks for
    own_rows = rank.tokens // plan.tp
    routed: dict[str, Any] = {
        "dtype": dtype,
        "tokens": own_rows,
        "hidden": hidden,
        "topk": experts.topk,
        "experts": experts.count,
    }
    router = Router(**routed, product=rank.execution.router_product)
    fused = rank.execution.fuse_permute
    permuted = (Permute(**routed, fused=fused), 1), (Unpermute(**routed, fused=fused), 1)
    return (
        Module(name="router", works=((router, 1),), part_of="moe"),
        Module(name="permute", works=permuted, part_of="moe"),
        *_expert_modules(rank, experts, own_rows),
        *_shared(rank, experts),
    )


def _expert_modules(rank: RankShare, experts: Experts, own_rows: int) -> tuple[Module, ...]:
    plan = rank.plan
    groups, rows = experts.count // plan.ep, own_rows * experts.topk * plan.etp
    busiest = busiest_rank(rank.execution.expert_load, experts, plan.ep)
    rows = round(rows * busiest)
    products = products_on_rank(experts.expert_matrices(rank.model), plan.etp)

    calls = groups if rank.execution.expert_products == IN_TURN else 1

    def product(n: int, k: int) -> tuple[Operator, int]:
        if groups == calls:
            return rank.gemm(n, k, m=max(1, rows // calls)), calls
        call = GroupedGemm(
            dtype=rank.run.precision,
            groups=groups,
            rows=rows,
            n=n,
            k=k,
            distribution=distribution_on_rank(rank.execution.expert_load),
            kernel=_kernel(rank),
        )
        return call, calls

    activation = (SwiGLU if experts.gated else Gelu)(dtype=rank.dtype, tokens=rows, width=products["down"][1])
    return (
        Module(
            name="moe",
            works=(product(*products["up"]),),
            exchanges=_exchanges(rank, experts, own_rows, busiest),
        ),
        Module(name="moe_act", works=(*_clamp(rank, experts, rows), (activation, 1)), part_of="moe"),
        Module(name="moe", works=(product(*products["down"]), *_biases(rank, experts, rows))),
        *_sorted_chunks(rank, groups, rows),
    )


def _kernel(rank: RankShare) -> str:
    """The name of the kernel of a rank's experts; a graph of the whole step quantises the rows of all of them at once."""
    if rank.execution.expert_products != PER_EXPERT:
        return ""
    return IN_GRAPH if rank.execution.cuda_graphs == "full" else PER_EXPERT


def _fused(rank: RankShare) -> bool:
    """A graph of the whole step cannot ask the host where an expert's rows begin, so its kernels add biases and clamp themselves
    (Transformer Engine's fused grouped MLP)."""
    return rank.execution.cuda_graphs == "full"


def _clamp(rank: RankShare, experts: Experts, rows: int) -> Works:
    """Clamping the gate and the linear half before the fused activation: split, two clamps and a concatenation of torch's own, each
    reading and writing its share (Megatron-LM, fusions/fused_bias_geglu.py), and masks in the backward."""
    width = 2 * experts.ffn // rank.plan.etp
    passes = Stream(dtype=rank.dtype, size_bytes=4 * rank.item_bytes * rows * width)
    return ((passes, 1),) if experts.clamped and not _fused(rank) else ()


def _biases(rank: RankShare, experts: Experts, rows: int) -> Works:
    """The bias of the product down, which torch adds expert by expert: bias times routing weight, their sum with the rows, and a
    concatenation (Megatron-LM, moe/experts.py, `_apply_bias`), all but the first read in fp32, as the routing weights are."""
    passes = Stream(dtype=rank.dtype, size_bytes=BIAS_BYTES * rows * rank.model.hidden)
    return ((passes, 1),) if experts.bias and not _fused(rank) else ()


def _sorted_chunks(rank: RankShare, groups: int, rows: int) -> tuple[Module, ...]:
    """After NCCL's exchange, rows that lie by sender are sorted by expert, and back (Megatron-LM, `sort_chunks_by_idxs`)."""
    if rank.execution.dispatch != "alltoall" or rank.plan.ep == 1 or groups == 1:
        return ()
    sort = Permute(
        dtype=rank.dtype,
        tokens=rows,
        hidden=rank.model.hidden,
        topk=1,
        experts=groups,
        fused=rank.execution.fuse_permute,
    )
    return (Module(name="permute", works=((sort, 2),), part_of="moe"),)


def _exchanges(rank: RankShare, experts: Experts, own_rows: int, busiest: float) -> tuple[Exchange, ...]:
    """Tokens to their experts and back; each over ep, then gathered and summed over etp."""
    etp = rank.groups.etp
    size = rank.item_bytes * round(own_rows * experts.topk * busiest) * rank.model.hidden
    there, back = _dispatch(rank, experts, own_rows * busiest)
    gathered, summed = etp.all_gather(size * etp.ranks), etp.reduce_scatter(size * etp.ranks)
    share, hidden_by = _hiding(rank)
    found = []
    if there:
        found.append(
            Exchange(
                heading="ep",
                forward=(*there, *back),
                backward=(*there, *back),
                forward_share=share,
                backward_share=share,
                hidden_by=hidden_by,
            )
        )
    if gathered:
        found.append(Exchange(heading="ep", forward=(*gathered, *summed), backward=(*gathered, *summed)))
    return tuple(found)


def _dispatch(rank: RankShare, experts: Experts, tokens: float) -> tuple[Calls, Calls]:
    """The exchange there and back over ep, of `tokens` per rank in 16 bits: Megatron-Core dispatches before it quantises
    (fused_a2a.py: Hybrid-EP "does not support fp8 dispatch")."""
    ep, kind = rank.groups.ep, rank.execution.dispatch
    size = rank.item_bytes * rank.model.hidden * tokens
    if kind == "alltoall":
        calls = ep.all_to_all(rank.item_bytes * rank.model.hidden * round(tokens * experts.topk))
        return calls, calls
    if kind == "allgather":
        return ep.all_gather(size * ep.ranks), ep.reduce_scatter(size * ep.ranks)
    in_node = min(ep.ranks, ep.ranks_per_node)
    nodes = -(-ep.ranks // in_node)
    # a copy that comes through the network lands on one of the node's ranks, which needs no further copy
    inside = expected_places(experts, ep.ranks) * (in_node - 1) / in_node
    away = expected_places(experts, nodes) * (nodes - 1) / nodes
    calls = ep.token_exchange(size * inside, size * away)
    return calls, calls


def _hiding(rank: RankShare) -> tuple[float, tuple[str, ...]]:
    if rank.execution.overlap_ep == "shared_expert":
        return 1.0, (SHARED,)
    if rank.execution.overlap_ep == "microbatch":
        # another microbatch's attention and experts, of which this one's are as long
        return SHARE_BESIDE_MICROBATCH, ("qkv", "core_attn", "proj", "mla_up_proj", "moe", "moe_act", SHARED)
    return 0.0, ()


def _shared(rank: RankShare, experts: Experts) -> tuple[Module, ...]:
    if not experts.shared_ffn:
        return ()
    works = mlp_works(rank, experts.shared_matrices(rank.model), gated=experts.gated)
    joined = ResidualAdd(dtype=rank.dtype, tokens=rank.rows, hidden=rank.model.hidden)
    return (
        Module(name=SHARED, works=(*works, (joined, 1)), exchanges=(*entering(rank), *leaving(rank)), part_of="moe"),
    )
