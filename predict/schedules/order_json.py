"""Orders as JSON: {"per_rank": [[["F" | "B" | "W" | "BW", microbatch, chunk], …], …]}.

A fourth entry 1 marks half of a pair.
"""

import json
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from predict.schedules.engine.order import CODE, KINDS, Order, Placement, Rows, loop
from sampling.errors import ConfigError
from sampling.files.schema import Count, Key, build


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacementEntry:
    """The stage that each chunk of a rank holds, and the chain of each chunk."""

    stages: tuple[tuple[Count, ...], ...]
    chains: tuple[Count, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderFile:
    """The keys of an order's file. Without `placement`, chunk k of rank r holds stage r + k · ranks."""

    per_rank: Annotated[
        tuple[Annotated[list[Any], Key(minimum=1)], ...],
        Key(minimum=1, meaning='[[["F", microbatch, chunk], …] of each rank]'),
    ]
    placement: PlacementEntry | None = None


def dump(order: Order) -> str:
    rows = ", ".join(json.dumps([_entry(*entry) for entry in row.tolist()]) for row in order.rows)
    placement = json.dumps({"stages": order.placement.stages, "chains": order.placement.chains})
    return f'{{"per_rank": [{rows}], "placement": {placement}}}\n'


def _entry(kind: int, microbatch: int, chunk: int, paired: int) -> list[str | int]:
    return [KINDS[kind], microbatch, chunk, *([1] if paired else [])]


def load(text: str) -> Order:
    """ConfigError names the entry that is wrong; whether the order is complete is for the engine to find."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not valid JSON: {error}; mend the syntax") from None
    if not isinstance(content, dict):
        raise ConfigError('holds no mapping; give {"per_rank": [[["F", microbatch, chunk], …], …]}')
    file, faults = build(OrderFile, content)
    if file is None:
        raise ConfigError("; ".join(f"{fault.path}: {fault.problem}" for fault in faults))
    rows = tuple(_row(rank, row) for rank, row in enumerate(file.per_rank))
    chunks = 1 + max(int(row[:, 2].max()) for row in rows)
    if chunks > max(map(len, rows)):
        raise ConfigError(f"per_rank: {chunks} chunks per rank, but no rank has as many actions; count chunks from 0")
    given = file.placement
    placement = Placement(stages=given.stages, chains=given.chains) if given else loop(len(rows), chunks)
    share = 1 + max(int(row[:, 1].max()) for row in rows)
    return Order(rows=rows, microbatches=share * placement.chain_count, placement=placement)


def _row(rank: int, row: list[Any]) -> Rows:
    made = np.zeros((len(row), 4), np.int32)
    for index, entry in enumerate(row):
        if not _is_entry(entry):
            raise ConfigError(
                f"per_rank[{rank}][{index}]: {json.dumps(entry)} is not an action; write [kind, microbatch, chunk] with a kind "
                f"of {', '.join(KINDS)}, and 1 after them for half of a pair"
            )
        made[index] = CODE[entry[0]], entry[1], entry[2], *(entry[3:] or [0])
    return made


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, list) or len(entry) not in (3, 4) or entry[0] not in KINDS:
        return False
    numbers = entry[1:]
    return all(type(number) is int and 0 <= number < 2**31 for number in numbers) and numbers[2:] in ([], [0], [1])
