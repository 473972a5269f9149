"""Expected copies of a token: the distinct groups of ranks (nodes, or single ranks) that hold the experts it is sent to."""

from __future__ import annotations

from functools import lru_cache
from math import comb

from predict.model.parts.mixture import Experts


@lru_cache(maxsize=256)
def expected_places(experts: Experts, places: int) -> float:
    """Expected number of `places`, each with an even share of the experts, that hold at least one expert of a token, if tokens
    choose experts at random.

    A place with e of the E experts is missed by C(E − e, k) of the C(E, k) choices of k. A router limited to groups (DeepSeek-V3,
    arXiv 2412.19437, section 2.1.2) first chooses some of them, and k experts within these; experts lie in order of their groups.
    """
    own = experts.count // places
    size = experts.count // experts.groups
    if own % size and size % own:
        # places that cut through groups: a bound, as if every group were open
        return places * _hit(experts.count, own, experts.topk)
    open_to = size * experts.topk_groups
    if own <= size:
        return places * experts.topk_groups / experts.groups * _hit(open_to, own, experts.topk)
    held, chosen = own // size, experts.topk_groups
    share = sum(
        comb(held, own_groups)
        * comb(experts.groups - held, chosen - own_groups)
        / comb(experts.groups, chosen)
        * _hit(open_to, own_groups * size, experts.topk)
        for own_groups in range(1, min(held, chosen) + 1)
    )
    return places * share


def _hit(experts: int, own: int, topk: int) -> float:
    """Probability that `topk` of `experts` include one of `own`."""
    return 1 - comb(experts - own, topk) / comb(experts, topk)
