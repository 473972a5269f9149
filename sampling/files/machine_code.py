"""Plain loops over arrays turned into machine code by numba, where it is installed; importing it takes half a second."""

import hashlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np


@cache
def numba_is_there() -> bool:
    return importlib.util.find_spec("numba") is not None


@cache
def compiled(
    loop: Callable[..., Any], *others: ModuleType, helpers: tuple[Callable[..., Any], ...] = ()
) -> Callable[..., Any]:
    """The loop as machine code, kept on disk. It takes arrays where its Python form takes lists, and makes none.

    `helpers` are the functions that it calls. `others` are the modules whose functions and constants it uses in addition to its own:
    the code is made anew when the file of any of them changes, or this one, since numba watches the file of the loop alone.
    """
    import numba
    from numba.extending import register_jitable

    for helper in helpers:
        # nothing calls it through C: a tenth of the compilation
        register_jitable(no_cfunc_wrapper=True)(helper)
    # a loop that makes no arrays needs no reference counts, on which a call that hands over forty arrays would spend most of its time
    options: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}
    made: Any = numba.njit(**options)(loop)
    made._cache = _cache_by(loop, others)
    return cast("Callable[..., Any]", made)


def form_of(machine_code: bool) -> Callable[[Any], Any]:
    """The conversion of numbers to the form that a loop takes: lists, or arrays for the compiled one.

    These are writable and contiguous: for a single array that is not, numba would compile the whole loop again.
    """
    return (lambda values: np.require(values, requirements=["C", "W"])) if machine_code else _as_list


def _as_list(values: Any) -> Any:
    return np.asarray(values).tolist()


def _cache_by(loop: Callable[..., Any], modules: Sequence[ModuleType]) -> Any:
    """numba's cache of the loop, by the content of modules too, and of this one, whose options numba's own key lacks."""
    from numba.core.caching import FunctionCache

    files = (__file__, *(str(each.__file__) for each in modules))
    digest = hashlib.sha256(b"".join(Path(each).read_bytes() for each in files)).hexdigest()

    class CacheByModules(FunctionCache):
        def _index_key(self, *key: Any) -> Any:
            return (*super()._index_key(*key), digest)  # type: ignore[no-untyped-call]

    made: Callable[..., Any] = CacheByModules
    return made(loop)


PATIENCE = 2**21
"""Turns of loops that Python runs before numba is imported: about 0.6 s, where the import and the first loaded loop take 1 to 1.5 s."""
PATIENCE_AGAIN = 2**20
"""Turns over orders that were timed before, 0.3 s: a process that times large orders so often usually times them many times more, each
about eighty times faster when compiled. A thousand plans of a search that are estimated once do not come so far."""
LONG = 2**22
"""Turns of a single loop that pay for it at once: 1.2 s."""
TURNS_OF_AN_ENGINE = 20
"""Turns of a loop of few lines that take as long in Python, 0.3 µs each, as one of an engine: 6 to 13 µs."""
COMPILING = 2**21
"""Turns of an engine in Python that take as long as the compilation of its loop: 20 s for one engine, 30 s for a fleet."""


@dataclass
class _Account:
    """Turns of loops that this process has run in Python."""

    turns: int = 0
    again: int = 0
    paid: bool = False
    """Whether numba has been brought in: from then on it costs nothing more."""
    uncompiled: dict[Callable[..., Any], int] = field(default_factory=dict)
    """Turns of each loop of many functions that was asked for while no machine code of it was kept."""


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


def pays_to_compile(loop: Callable[..., Any], turns: int) -> bool:
    """Whether to run the compiled form of an engine's loop, which has many functions: as `pays` says where its machine code is kept,
    otherwise from COMPILING turns of it on."""
    if _is_kept(loop):
        return pays(TURNS_OF_AN_ENGINE * turns)
    ACCOUNT.uncompiled[loop] = ACCOUNT.uncompiled.get(loop, 0) + turns
    return numba_is_there() and ACCOUNT.uncompiled[loop] >= COMPILING


def _is_kept(loop: Callable[..., Any]) -> bool:
    """Whether numba has written machine code of the loop beside its module."""
    file = Path(loop.__code__.co_filename)
    return any((file.parent / "__pycache__").glob(f"{file.stem}.{loop.__name__}-*.nbi"))
