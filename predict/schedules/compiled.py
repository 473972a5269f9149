"""Loops over flat lists of numbers, run by Python while there is little to do and compiled by numba once that pays."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

LOADING_COSTS = 4_000_000
"""Turns of such a loop that Python makes while numba is imported and takes its compiled code from disk: some 0.4 s at
0.1 µs a turn. A process that has made as many in Python is likely to make as many again: the rent has reached the price."""

_turns = 0


def pays(turns: int) -> bool:
    """Whether to take the compiled form of a loop about to make so many turns; counts them where not."""
    global _turns  # noqa: PLW0603 - the process's own account
    if _turns >= LOADING_COSTS or turns >= LOADING_COSTS:
        return _is_there()
    _turns += turns
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
