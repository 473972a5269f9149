"""Orders in files: .csv in torch's format, .json in this project's."""

import os
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from predict.schedules.engine.order import Order
from predict.schedules.engine.program import compile_order
from sampling.errors import ConfigError, InfeasibleError
from sampling.files.disk import NotReadError, read_text, require_regular, require_suffix, write_atomically

KEPT = 16
FORMATS = {".csv": "torch_csv", ".json": "order_json"}
"""Suffix → the module here that loads and dumps orders; a run without an order's file imports none."""


def is_order_file(name: str) -> bool:
    """True where a schedule's name is the path of a file with an order."""
    return name.lower().endswith(tuple(FORMATS))


def read_order(path: Path) -> Order:
    """Read an order that runs to its end; the same object while the file is the same. ConfigError names the file and the
    fault."""
    try:
        state = require_regular(path)
        return _read(Path(os.path.abspath(path)), path, state.st_mtime_ns, state.st_size)  # noqa: PTH100  (as hardware_facts)
    except NotReadError as error:
        raise ConfigError(f"{path}: cannot be read as a .csv or .json order: {error}") from None


@lru_cache(maxsize=KEPT)
def _read(absolute: Path, path: Path, changed_ns: int, size: int) -> Order:
    """The order; `absolute`, `changed_ns` and `size` say whether the file is the same, `path` is its name in errors."""
    try:
        order: Order = _format_of(path).load(read_text(path))
        compile_order(order)
    except (ConfigError, InfeasibleError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return order


def _format_of(path: Path) -> ModuleType:
    return import_module(f"predict.schedules.{FORMATS[path.suffix.lower()]}")


def write_order(order: Order, path: Path) -> None:
    """Write an order. UserError for another suffix, ConfigError if the format cannot hold the order."""
    require_suffix(path, FORMATS)
    write_atomically(path, _format_of(path).dump(order).encode())
