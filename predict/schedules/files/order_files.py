"""Orders in files: .csv in torch's format, .json in this project's."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from predict.schedules.engine.order import Order
from predict.schedules.engine.program import compile_order
from predict.schedules.files import order_json, torch_csv
from sampling.errors import ConfigError, InfeasibleError, UserError
from sampling.files.disk import write_atomically

KEPT = 16
FORMATS: dict[str, ModuleType] = {".csv": torch_csv, ".json": order_json}


def is_order_file(name: str) -> bool:
    """Whether a schedule's name is the path of a file with an order."""
    return Path(name).suffix.lower() in FORMATS


def read_order(path: Path) -> Order:
    """An order that runs to its end; the same object while the file is the same. ConfigError names the file and what is
    wrong in it."""
    try:
        state = path.stat()
        return _read(path.absolute(), path, state.st_mtime_ns, state.st_size)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: cannot be read: {reason}; give a .csv or .json file with an order") from None


@lru_cache(maxsize=KEPT)
def _read(absolute: Path, path: Path, changed_ns: int, size: int) -> Order:
    """All arguments tell whether the file is the same; `path` is its name in errors."""
    try:
        order: Order = FORMATS[path.suffix.lower()].load(path.read_text(encoding="utf-8"))
        compile_order(order)
    except (ConfigError, InfeasibleError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return order


def require_suffix(path: Path, allowed: Collection[str]) -> None:
    if path.suffix.lower() not in allowed:
        raise UserError(f"{path}: unknown kind of file; end the name in {' or '.join(allowed)}")


def write_order(order: Order, path: Path) -> None:
    """UserError for another suffix, ConfigError where the format cannot hold the order."""
    require_suffix(path, FORMATS)
    write_atomically(path, FORMATS[path.suffix.lower()].dump(order).encode())
