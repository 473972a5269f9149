"""Histories exported from Weights & Biases (CSV of a chart, JSON lines of a run) and scalars of TensorBoard (CSV, JSON).

A column that states the time of a step, under the names that training frameworks give it, is taken as it stands; without one, the time is
that between two rows by their clock (`_timestamp`, `_runtime`, `Wall time`) over the steps between them, with whatever else ran in it.

Source: wandb's `run.scan_history()` and its charts' CSV (`"Step","name - train/step_time","name - train/step_time__MIN",…`), TensorBoard's
download of one scalar (`Wall time,Step,Value`, and `[[wall time, step, value], …]`).
"""

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

from predict.measured_runs.steady_state import LoggedStep

FRAMEWORK = "W&B or TensorBoard exports"
STEPS = ("train/global_step", "trainer/global_step", "global_step", "_step", "Step", "step")
"""Columns that count steps, the first that is there counts: W&B's own counts what was logged."""
CLOCKS = ("_timestamp", "_runtime", "Wall time")
"""Columns of a clock, in seconds."""
TIME = re.compile(
    r"(?:^|[/ ])(?:perf/time_per_step|timing_s/step|time/step|dt|(?:train[_/])*(?:step|iteration|iter)[_-]?tim(?:e|ing)(?:_ms|_s| in s| \(m?s\))?|"
    r"train_step_timing in s|iteration-time|time_metrics/end_to_end\(s\)|time_per_(?:step|iteration)(?:_ms|_s)?)$"
)
"""Columns of a step's time: verl, prime-rl, nanochat, Megatron-LM, NeMo, torchtitan and the usual names; seconds unless it ends in ms."""
MILLISECONDS = re.compile(r"(?:_ms|\(ms\))$")
EXTREMES = ("__MIN", "__MAX")
"""Endings of the columns with which W&B's charts bound a mean."""
Row = Mapping[str, float]


def read(lines: Iterable[str]) -> Iterator[LoggedStep]:
    rows = [*_rows([line for line in lines if line.strip()])]
    names = {name for row in rows for name in row}
    step = next((name for name in STEPS if name in names), None)
    if step is None:
        return
    timed = sorted(name for name in names if TIME.search(name))
    if timed:
        unit_us = 1e3 if MILLISECONDS.search(timed[0]) else 1e6
        for row in rows:
            if row.get(timed[0], 0.0) > 0 and row.get(step, -1.0) >= 0:
                yield LoggedStep(step=int(row[step]), time_us=row[timed[0]] * unit_us)
    elif clock := next((name for name in CLOCKS if name in names), None):
        yield from _between([row for row in rows if step in row and clock in row], step, clock)


def _between(rows: Sequence[Row], step: str, clock: str) -> Iterator[LoggedStep]:
    for before, after in pairwise(rows):
        steps, seconds = after[step] - before[step], after[clock] - before[clock]
        if steps > 0 and seconds > 0:
            yield LoggedStep(step=int(after[step]), time_us=1e6 * seconds / steps)


def _rows(lines: Sequence[str]) -> Iterator[Row]:
    """The numbers of each row by column; none of a file that is no export."""
    first = lines[0].lstrip("\ufeff \t") if lines else ""
    if first.startswith("{") and '"_step"' in first:
        yield from _of_json_lines(lines)
    elif first.startswith("[["):
        yield from _of_scalars("\n".join(lines))
    elif re.match(r'"?(?:Step|_step|Wall time|global_step|train/global_step|_timestamp|_runtime)"?,', first):
        with suppress(csv.Error):  # a field without end, as a stray quote makes one
            for row in csv.DictReader([first, *lines[1:]]):
                yield _numbers({_plain(name): value for name, value in row.items() if name})


def _plain(column: str) -> str:
    """The metric of a column of W&B's chart, without the run's name before it."""
    return "" if column.endswith(EXTREMES) else column.rpartition(" - ")[2]


def _of_json_lines(lines: Iterable[str]) -> Iterator[Row]:
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield _numbers(row)


def _of_scalars(text: str) -> Iterator[Row]:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        return
    for row in table:
        if isinstance(row, list) and len(row) == 3:
            yield _numbers(dict(zip(("Wall time", "Step", "Value"), row, strict=True)))


def _numbers(row: Mapping[str, object]) -> Row:
    found: dict[str, float] = {}
    for name, value in row.items():
        try:
            number = float(value) if isinstance(value, int | float | str) and value != "" else math.nan
        except (ValueError, OverflowError):
            continue
        if name and math.isfinite(number):
            found[name] = number
    return found
