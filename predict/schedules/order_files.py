"""Orders in files: .csv in torch's format, .json in this project's."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from predict.schedules import order_json, torch_csv
from predict.schedules.order import Order
from predict.schedules.positions import check
from sampling.errors import ConfigError, UserError
from sampling.store import write_atomically

FORMATS: dict[str, ModuleType] = {".csv": torch_csv, ".json": order_json}


def is_order_file(name: str) -> bool:
    """Whether a schedule's name is the path of a file with an order."""
    return Path(name).suffix.lower() in FORMATS


def read_order(path: Path) -> Order:
    """A complete order. ConfigError names the file and what is wrong in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}; give a .csv or .json file with an order") from None
    try:
        order: Order = FORMATS[path.suffix.lower()].load(text)
        check(order)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return order


def write_order(order: Order, path: Path) -> None:
    """UserError for another suffix."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"{path}: an order is written as {' or '.join(FORMATS)}; end the name in one of these")
    write_atomically(path, FORMATS[path.suffix.lower()].dump(order).encode())
