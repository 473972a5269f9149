"""Stage times from a JSON file: {"forward": [[rank][chunk]], "backward_input": …, "backward_weight": …, "p2p": c}.

`backward` (the whole one, where it is not the sum of its halves), `activation_bytes` (what a chunk keeps of a microbatch
from its forward to its backward) and `overlap_gain` may be given too; `p2p` is one number or a list with one for each edge
between stages, 0 where it is left out. All times are in one unit, whichever.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from predict.schedules import registry
from predict.schedules.costs import LONGEST, ChunkTimes
from sampling.files.documents import read_json
from sampling.files.faults import Fault, config_error, did_you_mean, key_name, shown

TABLES = ("forward", "backward_input", "backward_weight")
OPTIONAL_TABLES = ("backward", "activation_bytes")
KEYS = (*TABLES, *OPTIONAL_TABLES, "p2p", "overlap_gain")
RANGE = f"give a number from 0 to {LONGEST:g}"


@dataclass(frozen=True, kw_only=True, slots=True)
class StageTable:
    """Times by rank and chunk, with how many there are."""

    ranks: int
    chunks: int
    times: ChunkTimes
    activation_bytes: ArrayLike | None = None

    def refusal(self, name: str) -> str | None:
        """Why the schedule `name` cannot run with these times, as words to follow its name; None if it can."""
        edges = registry.get(name).placement(self.ranks, self.chunks).depth - 1
        given = np.size(self.times.p2p)
        if np.ndim(self.times.p2p) == 0 or given == edges:
            return None
        return f"has {edges} edge{'' if edges == 1 else 's'}, the times have {given}; give p2p as one number"


def read_stage_times(path: Path) -> StageTable:
    """ConfigError lists every fault of the file."""
    content, faults = read_json(path)
    if content is None:
        raise config_error(faults, {"": str(path)})
    faults = [*faults, *_faults(content)]
    if faults:
        raise config_error(faults, {"": str(path)})
    tables = {name: content[name] for name in (*TABLES, "backward") if name in content}
    return StageTable(
        ranks=len(content["forward"]),
        chunks=len(content["forward"][0]),
        times=ChunkTimes(**tables, p2p=content.get("p2p", 0.0), overlap_gain=content.get("overlap_gain", 0.0)),
        activation_bytes=content.get("activation_bytes"),
    )


def _faults(content: Mapping[Any, Any]) -> Iterator[Fault]:
    for name in content:
        if name not in KEYS:
            hint = did_you_mean(name, KEYS) or f"; allowed: {', '.join(KEYS)}"
            yield Fault(path=key_name(name), problem=f"unknown key; remove it{hint}")
    shapes = {}
    for name in (*TABLES, *OPTIONAL_TABLES):
        if name in content:
            problems = list(_table_faults(name, content[name]))
            yield from problems
            if not problems:
                shapes[name] = (len(content[name]), len(content[name][0]))
        elif name in TABLES:
            yield Fault(path=name, problem="missing; give [[time of each chunk] of each rank]")
    different = len(set(shapes.values())) > 1
    if different:
        said = ", ".join(f"{name} {ranks} × {chunks}" for name, (ranks, chunks) in shapes.items())
        yield Fault(path="", problem=f"tables of different ranks × chunks ({said}); give all of one shape")
    known = shapes and not different
    yield from _p2p_faults(content.get("p2p", 0.0), math.prod(next(iter(shapes.values()))) - 1 if known else None)
    gain = content.get("overlap_gain", 0.0)
    if not _is_time(gain) or gain > 1:
        yield Fault(path="overlap_gain", problem=f"{shown(gain)} is no share; give a number from 0 to 1")


def _table_faults(name: str, table: Any) -> Iterator[Fault]:
    """What is wrong with its shape, or else with its first bad value."""
    if not isinstance(table, list) or not table or not all(isinstance(row, list) and row for row in table):
        yield Fault(path=name, problem=f"{shown(table)} is no table; give [[time of each chunk] of each rank]")
    elif len({len(row) for row in table}) > 1:
        counts = sorted({len(row) for row in table})
        yield Fault(path=name, problem=f"rows of {counts} chunks; give every rank equally many")
    else:
        bad = [(rank, chunk) for rank, row in enumerate(table) for chunk, time in enumerate(row) if not _is_time(time)]
        for rank, chunk in bad[:1]:
            yield Fault(path=f"{name}[{rank}][{chunk}]", problem=f"{shown(table[rank][chunk])} is no time; {RANGE}")


def _p2p_faults(p2p: Any, edges: int | None) -> Iterator[Fault]:
    """`edges` of the tables; None where they do not tell."""
    if not isinstance(p2p, list):
        if not _is_time(p2p):
            yield Fault(path="p2p", problem=f"{shown(p2p)} is no time; {RANGE}, or a list of them, one an edge")
        return
    bad = [edge for edge, time in enumerate(p2p) if not _is_time(time)]
    for edge in bad[:1]:
        yield Fault(path=f"p2p[{edge}]", problem=f"{shown(p2p[edge])} is no time; {RANGE}")
    if edges is not None and len(p2p) != edges:
        wanted = {0: "", 1: ", or a list of 1 number, one an edge"}.get(edges, f", or a list of {edges}, one an edge")
        yield Fault(path="p2p", problem=f"a list of {len(p2p)}; give one number{wanted}")


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= LONGEST
