"""Exchanges of tensor parallelism before and after the products that it splits.

Column-parallel products (query, key and value; the MLP's first) are entered by tokens that every rank needs whole,
row-parallel ones leave partial sums (Shoeybi et al., arXiv 1909.08053; with sequence parallelism Korthikanti et al., arXiv
2205.05198, which gathers the input once more in backward).
"""

from __future__ import annotations

from predict.rank.module import Exchange
from predict.rank.share import RankShare

TP = "tp"
BACKWARD_SHARE = 0.5
"""Share of a product's backward that computes the weight's gradient and hides the exchange of the input's gradient."""
PIPELINED_MOST = 0.55
"""Largest hidden share of a collective that moves piece by piece during its product: published runs show 35-80 % (torchtitan
with and without asynchronous tensor parallelism on H100)."""


def entering(rank: RankShare, width: int = 0, *, readers: int = 1) -> tuple[Exchange, ...]:
    """The exchange before `readers` column-parallel products of the same tokens, `width` wide (default: the hidden width).

    Without sequence parallelism each of them reduces its own gradient of the tokens; with it they share the gathered tokens.
    """
    group, size = rank.groups.tp, rank.item_bytes * rank.tokens * (width or rank.model.hidden)
    if group.ranks == 1:
        return ()
    again = group.all_gather(size) if rank.execution.gather_again else ()
    return (
        Exchange(
            heading=TP,
            forward=group.all_gather(size) if rank.plan.sp else (),
            backward=(*group.reduce_scatter(size), *again) if rank.plan.sp else group.all_reduce(size) * readers,
            forward_share=_share(rank, "pipelined"),
            backward_share=_share(rank, "pipelined", "backward"),
            most=_most(rank),
        ),
    )


def leaving(rank: RankShare) -> tuple[Exchange, ...]:
    """The exchange after a row-parallel product."""
    group, size = rank.groups.tp, rank.hidden_bytes
    if group.ranks == 1:
        return ()
    return (
        Exchange(
            heading=TP,
            forward=group.reduce_scatter(size) if rank.plan.sp else group.all_reduce(size),
            backward=group.all_gather(size) if rank.plan.sp else (),
            forward_share=_share(rank, "pipelined"),
            backward_share=_share(rank, "pipelined"),
            most=_most(rank),
        ),
    )


def _share(rank: RankShare, *kinds: str) -> float:
    overlap = rank.execution.overlap_tp
    if overlap not in kinds:
        return 0.0
    return 1.0 if overlap == "pipelined" else BACKWARD_SHARE


def _most(rank: RankShare) -> float:
    return PIPELINED_MOST if rank.execution.overlap_tp == "pipelined" else 1.0
