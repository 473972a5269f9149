"""Orders in torch's CSV of pipeline actions: one row per rank, one cell per action, empty cells for idle slots.

A cell is stage, kind and microbatch, as in 3F0: F, I (gradient of the input), W (gradient of the weights) or B (both).
A pair is (0F1;7B0)OVERLAP_F_B. This is what `_PipelineScheduleRuntime._load_csv` of torch.distributed.pipelining reads
and `_dump_csv` writes.
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence

import numpy as np

from predict.schedules.engine.order import (
    CHUNK,
    CODE,
    KIND,
    KINDS,
    MICROBATCH,
    PAIRED,
    ActionKind,
    Order,
    Placement,
    Rows,
)
from sampling.errors import ConfigError

LETTERS: dict[ActionKind, str] = {"F": "F", "B": "I", "W": "W", "BW": "B"}
KIND_OF: dict[str, ActionKind] = {letter: kind for kind, letter in LETTERS.items()}
NOT_COMPUTE = re.compile(r"\d+(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)\d*")
LONGEST_NUMBER = 9
"""Digits; what is longer does not fit the 32 bits of an order."""
ACTION = re.compile(r"(\d+)([FIWB])(\d+)")
PAIR = re.compile(r"\(([^;()]+);([^;()]+)\)OVERLAP_F_B")

Cell = tuple[ActionKind, int, int, bool]
"""Kind, microbatch, stage and whether it is half of a pair."""


def dump(order: Order) -> str:
    """The order as CSV. ConfigError where the format cannot hold it: two copies of the model."""
    if order.placement.chain_count > 1:
        raise ConfigError(
            "torch's CSV numbers the stages of one model, and this order runs two copies of it; use .json"
        )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for stages, row in zip(order.placement.stages, order.rows, strict=True):
        writer.writerow(_cells(stages, row))
    return text.getvalue()


def _cells(stages: Sequence[int], row: Rows) -> list[str]:
    cells: list[str] = []
    ahead = ""
    for kind, microbatch, chunk, paired in row.tolist():
        cell = f"{stages[chunk]}{LETTERS[KINDS[kind]]}{microbatch}"
        if ahead:
            cells.append(f"({ahead};{cell})OVERLAP_F_B")
            ahead = ""
        elif paired:
            ahead = cell
        else:
            cells.append(cell)
    return cells


def load(text: str) -> Order:
    """The order of a CSV; stages of a rank become its chunks, in ascending order. ConfigError names row, cell and fault.

    Actions that only communicate are ignored: the engine times transfers by itself.
    """
    try:
        table = [row for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error as error:
        raise ConfigError(f"not valid CSV: {error}; mend the file") from None
    read = [list(_read_row(rank, row)) for rank, row in enumerate(table)]
    if not any(read):
        raise ConfigError("no actions; give one row per rank, of cells like 0F0, 0I0, 0W0, 0B0")
    stages = [sorted({stage for _, _, stage, _ in row}) for row in read]
    _check_stages(stages)
    microbatches = 1 + max(microbatch for row in read for _, microbatch, _, _ in row)
    rows = []
    for held, row in zip(stages, read, strict=True):
        chunk = {stage: index for index, stage in enumerate(held)}
        made = np.zeros((len(row), 4), np.int32)
        made[:, KIND] = [CODE[kind] for kind, _, _, _ in row]
        made[:, MICROBATCH] = [microbatch for _, microbatch, _, _ in row]
        made[:, CHUNK] = [chunk[stage] for _, _, stage, _ in row]
        made[:, PAIRED] = [paired for _, _, _, paired in row]
        rows.append(made)
    placement = Placement(stages=tuple(map(tuple, stages)), chains=(0,) * len(stages[0]))
    return Order(rows=tuple(rows), microbatches=microbatches, placement=placement)


def _read_row(rank: int, row: Iterable[str]) -> Iterable[Cell]:
    for column, written in enumerate(row):
        cell = written.strip()
        pair = PAIR.fullmatch(cell)
        if pair:
            ahead, behind = (_read(rank, column, half, cell) for half in pair.groups())
            yield (*ahead, True)
            yield (*behind, True)
        elif cell and not NOT_COMPUTE.fullmatch(cell):
            yield (*_read(rank, column, cell, cell), False)


def _read(rank: int, column: int, action: str, cell: str) -> tuple[ActionKind, int, int]:
    found = ACTION.fullmatch(action.strip())
    if not found:
        raise ConfigError(
            f"row {rank + 1}, cell {column + 1}: {cell!r} is not an action; write stage, F, I, W or B, and microbatch, like 3F0"
        )
    stage, letter, microbatch = found.groups()
    if max(len(stage), len(microbatch)) > LONGEST_NUMBER:
        raise ConfigError(
            f"row {rank + 1}, cell {column + 1}: {cell[:40]!r} is larger than any pipeline; mend the number"
        )
    return KIND_OF[letter], int(microbatch), int(stage)


def _check_stages(stages: Sequence[Sequence[int]]) -> None:
    counts = [len(held) for held in stages]
    if len(set(counts)) > 1:
        raise ConfigError(f"the rows have {counts} stages; give every rank equally many")
    found = sorted(stage for held in stages for stage in held)
    if found != list(range(len(found))):
        raise ConfigError(f"the rows hold stages {found}; give each of 0 to {len(found) - 1} to one rank")
