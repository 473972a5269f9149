"""Plain loops over arrays turned into machine code by numba, where it is installed; importing it takes half a second."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, cast


@cache
def numba_is_there() -> bool:
    return importlib.util.find_spec("numba") is not None


@cache
def compiled(loop: Callable[..., Any], *others: ModuleType) -> Callable[..., Any]:
    """The loop as machine code, kept on disk. It takes arrays where its Python form takes lists.

    `others` are the modules whose functions and constants it uses beside its own: the code is made anew when the file of any of them
    changes, of which numba sees the loop's own alone.
    """
    import numba

    made: Any = numba.njit(cache=True, nogil=True)(loop)
    if others:
        made._cache = _cache_by(loop, others)
    return cast("Callable[..., Any]", made)


def _cache_by(loop: Callable[..., Any], modules: Sequence[ModuleType]) -> Any:
    """numba's cache of the loop, by the content of modules too."""
    from numba.core.caching import FunctionCache

    digest = hashlib.sha256(b"".join(Path(str(each.__file__)).read_bytes() for each in modules)).hexdigest()

    class CacheByModules(FunctionCache):
        def _index_key(self, *key: Any) -> Any:
            return (*super()._index_key(*key), digest)  # type: ignore[no-untyped-call]

    made: Callable[..., Any] = CacheByModules
    return made(loop)
