"""What a layer does with each token by itself: a dense MLP, or a mixture of experts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from predict.model.layer_kinds import LayerKind
from predict.model.parts.dense import Dense
from predict.model.parts.mixture import Experts
from predict.workload.rank.module import Exchange, Module, Works
from predict.workload.rank.share import RankShare
from predict.workload.rank.tensor_parallel import entering, leaving
from sampling.arithmetic.expert_rows import BALANCED, exponent_of
from sampling.cells.matrices import Matrix, products_on_rank
from sampling.operators.elementwise import Gelu, ResidualAdd, SwiGLU
from sampling.operators.experts import GroupedGemm
from sampling.operators.routing import Permute, Router, Unpermute

SHARED = "shared_experts"
SHARE_BESIDE_MICROBATCH = 0.8
"""Of another microbatch's work while which tokens travel: the two streams meet where one has to wait for the other."""


def feed_forward_modules(rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
    """From the residual stream to what is added to it."""
    norm = Module(name="layernorm", works=((rank.norm(), 1),))
    experts = rank.model.experts
    if not kind.sparse or experts is None:
        return (norm, *_dense(rank))
    return (norm, *_mixture(rank, experts))


def _dense(rank: RankShare) -> tuple[Module, ...]:
    works = mlp_works(rank, Dense().matrices(rank.model), gated=rank.model.gated)
    return (
        Module(name="mlp", works=works[:1], exchanges=entering(rank)),
        Module(name="mlp", works=works[1:], exchanges=leaving(rank)),
        Module(name="residual", works=rank.residual()),
    )


def mlp_works(rank: RankShare, matrices: Iterable[Matrix], *, gated: bool) -> Works:
    """Product in, activation, product out."""
    products = products_on_rank(matrices, rank.plan.tp)
    activation = (SwiGLU if gated else Gelu)(dtype=rank.dtype, tokens=rank.tokens, width=products["down"][1])
    return ((rank.gemm(*products["up"]), 1), (activation, 1), (rank.gemm(*products["down"]), 1))


def _mixture(rank: RankShare, experts: Experts) -> tuple[Module, ...]:
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
        Module(name="residual", works=rank.residual()),
    )


def _expert_modules(rank: RankShare, experts: Experts, own_rows: int) -> tuple[Module, ...]:
    plan, hidden = rank.plan, rank.model.hidden
    groups, rows = experts.count // plan.ep, own_rows * experts.topk * plan.etp
    busiest = busiest_rank(rank.execution.expert_load, experts, plan.ep)
    rows = round(rows * busiest)
    products = products_on_rank(experts.expert_matrices(rank.model), plan.etp)

    def grouped(n: int, k: int) -> GroupedGemm:
        return GroupedGemm(
            dtype=rank.run.precision,
            groups=groups,
            rows=rows,
            n=n,
            k=k,
            distribution=_distribution(rank.execution.expert_load),
        )

    activation = (SwiGLU if experts.gated else Gelu)(dtype=rank.dtype, tokens=rows, width=products["down"][1])
    return (
        Module(
            name="moe",
            works=((grouped(*products["up"]), 1),),
            exchanges=_exchanges(rank, round(own_rows * experts.topk * busiest), hidden),
        ),
        Module(name="moe_act", works=((activation, 1),), part_of="moe"),
        Module(name="moe", works=((grouped(*products["down"]), 1),)),
    )


def busiest_rank(load: str, experts: Experts, ep: int) -> float:
    """Rows of the rank whose experts are chosen most over the mean: every rank of ep waits for it.

    `load` is balanced, power_law_A (whose experts ranks hold in turns, the first of them the most popular), or how often each
    expert is chosen (`5,3,1,…`) in the order in which ranks hold them. A token chooses an expert once, so no expert has more
    than one row a token.
    """
    if load == BALANCED:
        return 1.0
    if "," in load:
        shares = _capped([float(count) for count in load.split(",")], 1 / experts.topk)
        own = experts.count // ep
        return ep * max(sum(shares[rank * own : (rank + 1) * own]) for rank in range(ep))
    exponent = exponent_of(load)
    shares = _capped([place**-exponent for place in range(1, experts.count + 1)], 1 / experts.topk)
    return ep * sum(shares[::ep])


def _capped(weights: list[float], most: float) -> list[float]:
    """Shares that add up to 1, in proportion to the weights but none above `most`; what is cut off goes to the others."""
    shares = [0.0] * len(weights)
    free, left = set(range(len(weights))), 1.0
    while True:
        total = sum(weights[index] for index in free)
        over = [index for index in free if total and left * weights[index] / total > most]
        if not over:
            break
        for index in over:
            shares[index] = most
        left -= most * len(over)
        free -= set(over)
    for index in free:
        shares[index] = left * weights[index] / total if total else left / len(free)
    return shares


def _distribution(load: str) -> str:
    """Over the experts of one rank, as the grouped product knows it; counts are summed up by rank."""
    return BALANCED if "," in load else load


def _exchanges(rank: RankShare, rows: int, hidden: int) -> tuple[Exchange, ...]:
    """Tokens to their experts and back; each over ep, then gathered and summed over etp."""
    ep, etp = rank.groups.ep, rank.groups.etp
    size = rank.item_bytes * rows * hidden
    there = ep.all_to_all(size)
    gathered, summed = etp.all_gather(size * etp.ranks), etp.reduce_scatter(size * etp.ranks)
    moved = (*there, *there)
    share, hidden_by = _hiding(rank)
    found = []
    if moved:
        found.append(
            Exchange(
                heading="ep",
                forward=moved,
                backward=moved,
                forward_share=share,
                backward_share=share,
                hidden_by=hidden_by,
            )
        )
    if gathered:
        found.append(Exchange(heading="ep", forward=(*gathered, *summed), backward=(*gathered, *summed)))
    return tuple(found)


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
