"""Loops over flat lists of numbers, run by Python while there is little to do and compiled by numba once that pays."""

from __future__ import annotations

from dataclasses import dataclass

from sampling.files.machine_code import numba_is_there

PATIENCE = 2**19
"""Turns of loops that Python runs before numba is imported: about 0.15 s, where the import takes 0.5 s."""
PATIENCE_AGAIN = 2**15
"""Turns over an order that was timed before: a process that times a large order again usually times it many times more, each
about eighty times faster when compiled."""
LONG = 2**21
"""Turns of a single loop that pay for it at once."""


@dataclass
class _Account:
    """Turns of loops that this process has run in Python."""

    turns: int = 0
    again: int = 0
    paid: bool = False
    """Whether numba has been brought in: from then on it costs nothing more."""


ACCOUNT = _Account()


def pays(turns: int, *, again: bool = False) -> bool:
    """Whether to run the compiled form of a loop of `turns` turns; `again`: over the same numbers as before.

    Where not, the turns are counted.
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
