"""Loops as machine code: kept on disk until one of their files changes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from sampling.files.machine_code import compiled


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def loop(count: int) -> int:
    return count + 1


def key(*others: ModuleType) -> Any:
    """The key under which numba keeps the loop's code."""
    made: Any = compiled.__wrapped__(loop, *others)
    return made._cache._index_key((), SimpleNamespace(magic_tuple=tuple))


def test_code_is_made_anew_where_another_file_of_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "constants.py"
    file.write_text("ONE = 1\n")
    before = key(module(file))
    assert before == key(module(file)) != key()
    file.write_text("ONE = 2\n")
    assert key(module(file)) != before
