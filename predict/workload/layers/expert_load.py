"""The load of the ranks that hold experts: balanced, by a power law, or by a count of how often each expert is chosen."""

from __future__ import annotations

from predict.model.parts.mixture import Experts
from sampling.arithmetic.expert_rows import BALANCED, exponent_of


def busiest_rank(load: str, experts: Experts, ep: int) -> float:
    """Rows of the busiest rank over the mean; every rank of ep waits for that one.

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
    """The distribution over the experts of one rank, as the grouped product takes it; counts decide the load of ranks alone."""
    return BALANCED if "," in load else load
