"""Orders as JSON: {"per_rank": [[["F" | "B" | "W" | "BW", microbatch, chunk], …], …]}.

A fourth entry 1 marks half of a pair. `placement` tells which stage each chunk of a rank holds, and of which chain; it
may be left out for chunk k of rank r holding stage r + k · ranks.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from predict.schedules.order import CODE, KINDS, Order, Placement, Rows, loop
from sampling.errors import ConfigError

KEYS = ("per_rank", "placement")


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
    unknown = [key for key in content if key not in KEYS] if isinstance(content, dict) else []
    if unknown:
        raise ConfigError(f"{unknown[0]}: unknown key; remove it, or write one of {', '.join(KEYS)}")
    per_rank = content.get("per_rank") if isinstance(content, dict) else None
    if not isinstance(per_rank, list) or not all(isinstance(row, list) and row for row in per_rank) or not per_rank:
        raise ConfigError('per_rank: missing or empty; give {"per_rank": [[["F", microbatch, chunk], …], …]}')
    rows = tuple(_row(rank, row) for rank, row in enumerate(per_rank))
    chunks = 1 + max(int(row[:, 2].max()) for row in rows)
    if chunks > max(map(len, rows)):
        raise ConfigError(f"per_rank: {chunks} chunks a rank, but no rank has as many actions; count chunks from 0")
    placement = _placement(content["placement"]) if "placement" in content else loop(len(rows), chunks)
    share = 1 + max(int(row[:, 1].max()) for row in rows)
    return Order(rows=rows, microbatches=share * placement.chain_count, placement=placement)


def _row(rank: int, row: list[Any]) -> Rows:
    made = np.zeros((len(row), 4), np.int32)
    for index, entry in enumerate(row):
        if not _is_entry(entry):
            raise ConfigError(
                f"per_rank[{rank}][{index}]: {json.dumps(entry)} is no action; write [kind, microbatch, chunk] with a kind "
                f"of {', '.join(KINDS)}, and 1 after them for half of a pair"
            )
        made[index] = CODE[entry[0]], entry[1], entry[2], *(entry[3:] or [0])
    return made


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, list) or len(entry) not in (3, 4) or entry[0] not in KINDS:
        return False
    numbers = entry[1:]
    return all(type(number) is int and 0 <= number < 2**31 for number in numbers) and numbers[2:] in ([], [0], [1])


def _placement(given: Any) -> Placement:
    try:
        stages, chains = given["stages"], given["chains"]
        if not all(type(number) is int for row in [*stages, chains] for number in row):
            raise TypeError
        return Placement(stages=tuple(map(tuple, stages)), chains=tuple(chains))
    except (KeyError, TypeError):
        raise ConfigError(
            'placement: give {"stages": [[stage of each chunk] of each rank], "chains": [chain of each chunk]}'
        ) from None
