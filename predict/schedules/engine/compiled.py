"""Loops over flat lists of numbers, run by Python while there is little to do and compiled by numba once that pays."""

from __future__ import annotations

from dataclasses import dataclass

from sampling.files.machine_code import numba_is_there

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
        ACCOUNT.paid = numba_is_there()
        return ACCOUNT.paid
    ACCOUNT.turns += turns
    ACCOUNT.again += repeated
    return False
