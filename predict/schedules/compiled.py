"""Loops over flat lists of numbers, run by Python while there is little to do and compiled by numba once that pays."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

PATIENCE = 2**19
"""Turns of such loops that Python makes before numba is imported: some 0.15 s, where that takes 0.5 s."""
PATIENCE_AGAIN = 2**15
"""Of them those on what was looped over before: a process that times a large order again is as a rule about to time it
many times more, each then some eighty times as fast."""
LONG = 2**21
"""Turns of a single loop that pay for it at once."""


@dataclass
class _Account:
    """What this process has looped through in Python."""

    turns: int = 0
    again: int = 0
    paid: bool = False
    """Whether numba has been brought in: from then on it costs nothing more."""


ACCOUNT = _Account()


def pays(turns: int, *, again: bool = False) -> bool:
    """Whether to take the compiled form of a loop about to make so many turns, `again` over the same numbers.

    Counts them where not.
    """
    if ACCOUNT.paid:
        return True
    repeated = turns if again else 0
    if ACCOUNT.turns >= PATIENCE or ACCOUNT.again + repeated >= PATIENCE_AGAIN or turns >= LONG:
        ACCOUNT.paid = _is_there()
        return ACCOUNT.paid
    ACCOUNT.turns += turns
    ACCOUNT.again += repeated
    return False


@cache
def _is_there() -> bool:
    return importlib.util.find_spec("numba") is not None


@cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """The loop as machine code. It takes arrays where its Python form takes lists."""
    import numba

    made: Callable[..., Any] = numba.njit(cache=True, nogil=True)(loop)
    return made
