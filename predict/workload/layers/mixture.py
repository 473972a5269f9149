"""A mixture of experts: router, exchange of tokens, grouped products, combination, and shared experts beside them."""

from __future__ import annotations

from typing import Any

from predict.model.layer_kinds import LayerKind
from predict.model.parts.mixture import Experts
from predict.workload.layers.dense import mlp_works
from predict.workload.layers.expert_load import busiest_rank, distribution_on_rank
from predict.workload.layers.token_copies import expected_places
from predict.workload.rank.blocks import Calls
from predict.workload.rank.module import Exchange, Module
from predict.workload.rank.share import RankShare
from predict.workload.rank.tensor_parallel import entering, leaving
from sampling.cells.matrices import products_on_rank
from sampling.operators.elementwise import Gelu, ResidualAdd, SwiGLU
from sampling.operators.experts import GroupedGemm
from sampling.operators.routing import Permute, Router, Unpermute

SHARED = "shared_experts"
SHARE_BESIDE_MICROBATCH = 0.8
"""Share of another microbatch's work behind which tokens can travel; the two streams have to wait for each other at times."""


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
    router = Module(name="router", works=((Router(**routed), 1),), part_of="moe")
    permute = Module(name="permute", works=((Permute(**routed), 1), (Unpermute(**routed), 1)), part_of="moe")
    return (
        router,
        permute,
        *_expert_modules(rank, experts, own_rows),
        *_shared(rank, experts),
    )


def _expert_modules(rank: RankShare, experts: Experts, own_rows: int) -> tuple[Module, ...]:
    plan = rank.plan
    groups, rows = experts.count // plan.ep, own_rows * experts.topk * plan.etp
    busiest = busiest_rank(rank.execution.expert_load, experts, plan.ep)
    rows = round(rows * busiest)
    products = products_on_rank(experts.expert_matrices(rank.model), plan.etp)

    calls = 1 if rank.execution.grouped_experts else groups

    def product(n: int, k: int) -> tuple[GroupedGemm, int]:
        call = GroupedGemm(
            dtype=rank.run.precision,
            groups=groups // calls,
            rows=max(1, rows // calls),
            n=n,
            k=k,
            distribution=distribution_on_rank(rank.execution.expert_load) if calls == 1 else "balanced",
        )
        return call, calls

    activation = (SwiGLU if experts.gated else Gelu)(dtype=rank.dtype, tokens=rows, width=products["down"][1])
    return (
        Module(
            name="moe",
            works=(product(*products["up"]),),
            exchanges=_exchanges(rank, experts, own_rows, busiest),
        ),
        Module(name="moe_act", works=((activation, 1),), part_of="moe"),
        Module(name="moe", works=(product(*products["down"]),)),
    )


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
