"""A schedule's timeline as a Chrome trace, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

The format: "Trace Event Format", Google, docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from predict.schedules.engine.order import Action, Kind
from predict.schedules.engine.timing import Timeline
from sampling.errors import UserError
from sampling.files.disk import write_atomically

COLOURS: dict[Kind, str] = {
    "F": "thread_state_runnable",
    "B": "background_memory_dump",
    "W": "thread_state_iowait",
    "BW": "thread_state_running",
}
"""The viewers' colour names that are nearest to the palette: blue, teal, amber and green."""
PROCESS = 0
MOST_ACTIONS = 200_000
"""Limit of a trace's events: about 90 MB, written in 5 s."""
INSIDE = 0.01
"""Distance of a flow's start from the end of its slice, as a share of it: one at the very end binds to the next slice."""


class _Slice(NamedTuple):
    rank: int
    start: float
    end: float


Slices = dict[tuple[bool, int, int, int], _Slice]
"""(whether it is a forward, chain, stage, microbatch) → when and where it ran; of a split backward its B."""


def save_trace(timeline: Timeline, path: Path, *, name: str) -> None:
    """Write the trace to a file; UserError for a step of more than MOST_ACTIONS actions."""
    actions = sum(map(len, timeline.start))
    if actions > MOST_ACTIONS:
        raise UserError(
            f"a trace holds at most {MOST_ACTIONS:,} actions, and this step has {actions:,}; take fewer microbatches"
        )
    write_atomically(path, json.dumps(chrome_trace(timeline, name=name)).encode())


def chrome_trace(timeline: Timeline, *, name: str) -> dict[str, Any]:
    """The trace as an object to write as JSON: one row per rank, one slice per action, one arrow per transfer between ranks.

    Times are taken for microseconds. A row's index and `tid` are the rank.
    """
    events = [*_rows(timeline, name), *_slices(timeline), *_flows(timeline)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _rows(timeline: Timeline, name: str) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": PROCESS, "args": {"name": name}}
    for rank in range(len(timeline.order.actions)):
        row = {"ph": "M", "pid": PROCESS, "tid": rank}
        yield {**row, "name": "thread_name", "args": {"name": f"rank {rank}"}}
        yield {**row, "name": "thread_sort_index", "args": {"sort_index": rank}}


def _slices(timeline: Timeline) -> Iterator[dict[str, Any]]:
    for action, stage, (rank, start, end) in _actions(timeline):
        kind, microbatch, chunk = action.kind, action.microbatch, action.chunk
        yield {
            "ph": "X",
            "name": f"{kind} {microbatch}",
            "cat": "compute",
            "pid": PROCESS,
            "tid": rank,
            "ts": start,
            "dur": end - start,
            "cname": COLOURS[kind],
            "args": {"kind": kind, "microbatch": microbatch, "chunk": chunk, "stage": stage},
        }


def _flows(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Activations to the next stage and gradients to the one before, where that is on another rank."""
    slices = _by_stage(timeline)
    numbers = count()
    for (forward, chain, stage, microbatch), sender in slices.items():
        receiver = slices.get((forward, chain, stage + (1 if forward else -1), microbatch))
        if receiver is None or receiver.rank == sender.rank:
            continue
        flow = {"cat": "p2p", "name": "activation" if forward else "gradient", "id": next(numbers), "pid": PROCESS}
        sent = sender.end - INSIDE * (sender.end - sender.start)
        yield {**flow, "ph": "s", "tid": sender.rank, "ts": sent}
        yield {**flow, "ph": "f", "bp": "e", "tid": receiver.rank, "ts": receiver.start}


def _by_stage(timeline: Timeline) -> Slices:
    chains = timeline.order.placement.chains
    return {
        (action.kind == "F", chains[action.chunk], stage, action.microbatch): where
        for action, stage, where in _actions(timeline)
        if action.kind != "W"
    }


def _actions(timeline: Timeline) -> Iterator[tuple[Action, int, _Slice]]:
    """Every action with its stage, rank by rank."""
    order = timeline.order
    for rank, stages in enumerate(order.placement.stages):
        times = zip(timeline.start[rank].tolist(), timeline.end[rank].tolist(), strict=True)
        for action, (start, end) in zip(order.actions[rank], times, strict=True):
            yield action, stages[action.chunk], _Slice(rank, start, end)
