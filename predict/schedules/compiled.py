"""Loops over flat lists of numbers, run by Python while there is little to do and compiled by numba once that pays."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

PATIENCE = 2**16
"""Turns of such loops that Python makes before numba is imported. That takes half a second, as long as Python takes for
some two million turns, so one schedule never pays for it; but a process that has timed a large one is as a rule about to
time more, each then some eighty times as fast."""
LONG = 2**21
"""Turns of a single loop that pay for it at once."""

_turns = 0


def pays(turns: int) -> bool:
    """Whether to take the compiled form of a loop about to make so many turns; counts them where not."""
    global _turns  # noqa: PLW0603 - the process's own account
    if _turns >= PATIENCE or turns >= LONG:
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
