"""Plain loops over arrays turned into machine code by numba, where it is installed; importing it takes half a second."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def numba_is_there() -> bool:
    return importlib.util.find_spec("numba") is not None


@cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """The loop as machine code, kept on disk. It takes arrays where its Python form takes lists."""
    import numba

    made: Callable[..., Any] = numba.njit(cache=True, nogil=True)(loop)
    return made
