"""Stage times from a JSON file: {"forward": [[rank][chunk]], "backward_input": …, "backward_weight": …, "p2p": c}.

`backward` (the whole one, where it is not the sum of its halves) and `overlap_gain` may be given too; `p2p` is one number
or one for each edge between stages, 0 where it is left out. All are in one unit, whichever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from predict.documents import read_json
from predict.faults import Fault, config_error, did_you_mean, key_name, shown
from predict.schedules.costs import LONGEST, ChunkTimes

TABLES = ("forward", "backward_input", "backward_weight")
OPTIONAL_TABLES = ("backward",)
KEYS = (*TABLES, *OPTIONAL_TABLES, "p2p", "overlap_gain")


@dataclass(frozen=True, kw_only=True, slots=True)
class StageTable:
    """Times by rank and chunk, with how many there are."""

    ranks: int
    chunks: int
    times: ChunkTimes


def read_stage_times(path: Path) -> StageTable:
    """ConfigError lists every fault of the file."""
    content, faults = read_json(path)
    if content is None:
        raise config_error(faults, {"": str(path)})
    faults = [*faults, *_faults(content)]
    if faults:
        raise config_error(faults, {"": str(path)})
    tables = {name: content[name] for name in (*TABLES, *OPTIONAL_TABLES) if name in content}
    return StageTable(
        ranks=len(content["forward"]),
        chunks=len(content["forward"][0]),
        times=ChunkTimes(**tables, p2p=content.get("p2p", 0.0), overlap_gain=content.get("overlap_gain", 0.0)),
    )


def _faults(content: Mapping[Any, Any]) -> Iterator[Fault]:
    for name in content:
        if name not in KEYS:
            hint = did_you_mean(name, KEYS) or f"; allowed: {', '.join(KEYS)}"
            yield Fault(path=key_name(name), problem=f"unknown key; remove it{hint}")
    shapes = {}
    for name in (*TABLES, *OPTIONAL_TABLES):
        if name not in content:
            if name in TABLES:
                yield Fault(path=name, problem="missing; give [[time of each chunk] of each rank]")
            continue
        problem = _table_problem(content[name])
        if problem:
            yield Fault(path=name, problem=problem)
        else:
            shapes[name] = (len(content[name]), len(content[name][0]))
    if len(set(shapes.values())) > 1:
        said = ", ".join(f"{name} {ranks} × {chunks}" for name, (ranks, chunks) in shapes.items())
        yield Fault(path="", problem=f"tables of different ranks × chunks ({said}); give all of one shape")
    elif shapes:
        yield from _other_faults(content, *next(iter(shapes.values())))


def _table_problem(table: Any) -> str | None:
    if not isinstance(table, list) or not table or not all(isinstance(row, list) and row for row in table):
        return f"{shown(table)} is no table; give [[time of each chunk] of each rank]"
    if len({len(row) for row in table}) > 1:
        return f"rows of {sorted({len(row) for row in table})} chunks; give every rank equally many"
    bad = [value for row in table for value in row if not _is_time(value)]
    return f"{shown(bad[0])} is no time; give numbers of 0 or more" if bad else None


def _other_faults(content: Mapping[Any, Any], ranks: int, chunks: int) -> Iterator[Fault]:
    p2p = content.get("p2p", 0.0)
    edges = p2p if isinstance(p2p, list) else [p2p]
    if not all(map(_is_time, edges)) or (isinstance(p2p, list) and len(p2p) != ranks * chunks - 1):
        edge_count = ranks * chunks - 1
        yield Fault(path="p2p", problem=f"{shown(p2p)}; give one number of 0 or more, or {edge_count}, one an edge")
    gain = content.get("overlap_gain", 0.0)
    if not _is_time(gain) or gain > 1:
        yield Fault(path="overlap_gain", problem=f"{shown(gain)} is no share; give a number from 0 to 1")


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= LONGEST
