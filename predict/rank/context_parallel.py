"""Exchanges of context parallelism, by which every query meets every key.

`ring` passes keys and values round while attention works on those that have arrived (Liu et al., arXiv 2310.01889); `all_to_all`
turns shares of the sequence into shares of the heads and back (Jacobs et al., arXiv 2309.14509); `all_gather` collects
the keys and values first (Llama team, arXiv 2407.21783).
"""

from __future__ import annotations

from predict.rank.module import Exchange
from predict.rank.share import RankShare


def exchange_of_keys(rank: RankShare, query_width: int, key_value_width: int) -> tuple[Exchange, ...]:
    """Exchanges of a mixer whose queries and outputs are `query_width` wide on this rank, and whose keys and values are
    `key_value_width` wide together."""
    group, of_width = rank.groups.cp, rank.item_bytes * rank.tokens
    keys, queries = of_width * key_value_width, of_width * query_width
    if group.ranks == 1:
        return ()
    if rank.plan.cp_method == "all_to_all":
        both_ways = (*group.all_to_all(keys + queries), *group.all_to_all(queries))
        return (Exchange(heading="cp", forward=both_ways, backward=both_ways),)
    if rank.plan.cp_method == "all_gather":
        whole = keys * group.ranks
        gathered = group.all_gather(whole)
        return (Exchange(heading="cp", forward=gathered, backward=(*gathered, *group.reduce_scatter(whole))),)
    return (
        Exchange(
            heading="cp",
            forward=group.round_of_sends(keys),
            # keys and values go round again, and their gradients after them
            backward=group.round_of_sends(2 * keys),
            forward_share=1.0,
            backward_share=1.0,
        ),
    )
