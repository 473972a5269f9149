"""Rows that each expert of a mixture gets, by the distribution of tokens over experts."""

import math
from functools import lru_cache

from sampling.errors import SamplesError

BALANCED = "balanced"
POWER_LAW = "power_law_"


@lru_cache(maxsize=1024)
def rows_of_groups(rows: int, groups: int, distribution: str) -> tuple[int, ...]:
    """Rows of each group, the largest first; they sum to `rows`.

    `balanced` divides them evenly; `power_law_A` gives the r-th group a share proportional to r^-A. Raises SamplesError for
    any other distribution.
    """
    shares = [rank ** -exponent_of(distribution) for rank in range(1, groups + 1)]
    total = math.fsum(shares)
    exact = [rows * (share / total) for share in shares]
    whole = [math.floor(value) for value in exact]
    by_remainder = sorted(range(groups), key=lambda group: whole[group] - exact[group])
    for group in by_remainder[: rows - sum(whole)]:
        whole[group] += 1
    return tuple(whole)


def exponent_of(distribution: str) -> float:
    """A of `power_law_A`, 0 of `balanced`; SamplesError for any other."""
    if distribution == BALANCED:
        return 0.0
    name, number = distribution[: len(POWER_LAW)], distribution[len(POWER_LAW) :]
    try:
        exponent = float(number) if name == POWER_LAW else math.nan
    except ValueError:
        exponent = math.nan
    if not 0 <= exponent < math.inf:
        raise SamplesError(
            f"distribution: {distribution!r} is not a distribution of rows over experts; give {BALANCED!r} or "
            f"'{POWER_LAW}A' with a number A of 0 or more, such as '{POWER_LAW}1.2'"
        )
    return exponent


@lru_cache(maxsize=4096)
def experts_with_rows(groups: int, rows: int, distribution: str) -> float:
    """Number of experts that get a row, so that their weights are read; the expected number for a power law."""
    if not distribution.startswith(POWER_LAW):
        return float(min(groups, rows))
    exponent = exponent_of(distribution)
    shares: list[float] = [rank**-exponent for rank in range(1, groups + 1)]
    total = sum(shares)
    return math.fsum(1 - (1 - share / total) ** rows for share in shares)
