"""Stage times from a JSON file: {"forward": [[rank][chunk]], "backward_input": …, "backward_weight": …, "p2p": c}.

All times are in one unit, whichever.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from predict.schedules import registry
from predict.schedules.engine.costs import LONGEST, ChunkTimes
from sampling.files.faults import Fault, counted
from sampling.files.schema import Key, Share, read

Time: TypeAlias = Annotated[float, Key(minimum=0, maximum=LONGEST)]
Table: TypeAlias = Annotated[
    tuple[Annotated[tuple[Time, ...], Key(minimum=1)], ...],
    Key(minimum=1, meaning="[[time of each chunk] of each rank]"),
]
TABLES = ("forward", "backward_input", "backward_weight", "backward", "activation_bytes")


@dataclass(frozen=True, kw_only=True, slots=True)
class StageTimesFile:
    """The keys of a file of stage times; all tables are of one shape."""

    forward: Table
    backward_input: Table
    backward_weight: Table
    backward: Table | None = None
    """The whole backward, where it is not the sum of its halves."""
    activation_bytes: Table | None = None
    """Bytes that a chunk keeps of a microbatch from its forward to its backward."""
    p2p: Time | tuple[Time, ...] = 0.0
    """Transfer of a result to the next stage: one number, or one for each edge between stages."""
    overlap_gain: Share = 0.0
    """Share of the shorter half of a pair that hides behind the longer one."""

    def contradictions(self) -> Iterator[Fault]:
        """Faults of tables of different shapes, and of p2p times that are more or fewer than the edges."""
        tables = {name: table for name in TABLES if (table := getattr(self, name)) is not None}
        for name, table in tables.items():
            counts = sorted({len(row) for row in table})
            if len(counts) > 1:
                yield Fault(path=name, problem=f"rows of {counts} chunks; give every rank equally many")
        shapes = {name: (len(table), len(table[0])) for name, table in tables.items()}
        if len(set(shapes.values())) > 1:
            said = ", ".join(f"{name} {ranks} × {chunks}" for name, (ranks, chunks) in shapes.items())
            yield Fault(path="", problem=f"tables of different ranks × chunks ({said}); give all of one shape")
        elif isinstance(self.p2p, tuple) and len(self.p2p) != (edges := math.prod(shapes["forward"]) - 1):
            listed = f", or a list of {edges}, one for each edge" if edges else ""
            yield Fault(path="p2p", problem=f"a list of {len(self.p2p)}; give one number{listed}")


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
        return f"has {counted(edges, 'edge')}, the times have {given}; give p2p as one number"


def read_stage_times(path: Path) -> StageTable:
    """ConfigError lists every fault of the file."""
    file = read(StageTimesFile, path)
    times = ("forward", "backward_input", "backward_weight", "backward", "p2p", "overlap_gain")
    return StageTable(
        ranks=len(file.forward),
        chunks=len(file.forward[0]),
        times=ChunkTimes(**{name: getattr(file, name) for name in times}),
        activation_bytes=file.activation_bytes,
    )
