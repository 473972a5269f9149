"""The load of the ranks that hold experts: balanced, measured, as a trained router leaves it, by a power law, or by a count of how often
each expert is chosen."""

import math
from functools import lru_cache
from math import comb
from statistics import NormalDist

from predict.model.spec import Experts
from predict.run.execution import NATURAL, UNTOUCHED
from sampling.arithmetic.expert_rows import BALANCED, POWER_LAW, exponent_of

BUSIEST_EXPERT = 0.62
"""Excess of the most loaded expert over the mean under an auxiliary loss: MaxVio of models with 64 experts is 0.72 and 0.52 (Wang et al.,
arXiv 2408.15664, table 2; a bias per expert in place of the loss leaves 0.04 over the whole run, more in each batch)."""
EXPERTS_THERE = 64
UNTOUCHED_MOST = 2.2
"""Steps of a router that nothing balances over those of a forced one: 1.0, 1.04 and 2.2 in three publications (pith-train, issue 79;
marin, issue 7668)."""


def busiest_rank(load: str, experts: Experts, ep: int) -> float:
    """Rows of the busiest rank over the mean; every rank of ep waits for that one.

    `load` is one of

    - balanced;
    - a number, measured: 1 or more, and on few ranks no more than their number;
    - untouched: nothing is known of a router that nothing balances but how far published ones went;
    - natural: the loads of experts spread independently of each other, so that a rank with many evens them out;
    - power_law_A: ranks hold the experts in turns, the most popular first;
    - how often each expert is chosen (`5,3,1,…`), in the order in which ranks hold them.

    A token chooses an expert once, so no expert has more than one row per token.
    """
    if load == BALANCED:
        return 1.0
    if load == UNTOUCHED:
        return min(float(ep), math.sqrt(UNTOUCHED_MOST))
    if is_number(load):
        return min(float(ep), float(load))
    if load == NATURAL:
        spread = BUSIEST_EXPERT / _highest_of(EXPERTS_THERE)
        return min(float(ep), 1 + _highest_of(ep) * spread / math.sqrt(experts.count / ep))
    if "," in load:
        shares = _capped([float(count) for count in load.split(",")], 1 / experts.topk)
        own = experts.count // ep
        return ep * max(sum(shares[rank * own : (rank + 1) * own]) for rank in range(ep))
    exponent = exponent_of(load)
    shares = _capped([place**-exponent for place in range(1, experts.count + 1)], 1 / experts.topk)
    return ep * sum(shares[::ep])


def _highest_of(count: int) -> float:
    """The expected highest of `count` standard normal numbers (Blom, Statistical Estimates and Transformed Beta-Variables, 1958)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def _capped(weights: list[float], most: float) -> list[float]:
    """Shares that add up to 1, in proportion to the weights but none above `most`; the excess goes to the others."""
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


def distribution_on_rank(load: str) -> str:
    """The distribution over the experts of one rank, as the grouped product takes it; counts and natural routing decide the load of
    ranks alone."""
    return load if load.startswith(POWER_LAW) else BALANCED


def is_number(load: str) -> bool:
    return load.replace(".", "", 1).isdigit()


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
