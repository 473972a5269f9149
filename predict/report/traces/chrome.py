"""A predicted step as a Chrome trace, which Perfetto (ui.perfetto.dev) opens: a process a pipeline rank, a thread a stream.

The format is that of `predict.report.schedules.trace`, whose colours and limit it shares.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from predict.report.call_text import call_text
from predict.report.run_text import run_text
from predict.report.schedules.trace import COLOURS, INSIDE, MOST_ACTIONS
from predict.report.traces.pieces import Pieces
from predict.report.traces.step_slices import ACTIONS, SENDS, Slice, rank_slices, streams_of
from predict.step.prediction import Prediction
from predict.step.priced_rank import BUCKETS
from sampling.errors import UserError
from sampling.files.disk import write_atomically

Event = dict[str, Any]


def save_step_trace(prediction: Prediction, path: Path) -> int:
    """Write the trace, compressed where the name ends in .gz; how many actions of each rank have their operators.

    UserError for a step of more actions than a trace holds.
    """
    trace, detailed = step_trace(prediction)
    content = json.dumps(trace, separators=(",", ":")).encode()
    write_atomically(path, gzip.compress(content, mtime=0) if path.suffix.lower() == ".gz" else content)
    return detailed


def step_trace(prediction: Prediction) -> tuple[Event, int]:
    """The trace as an object to write as JSON, and how many actions of each rank have their operators: as many as its limit
    leaves room for, the first ones."""
    pieces = Pieces(prediction.prices)
    detailed = _detailed(prediction, pieces)
    begins = [_begins(prediction, rank) for rank in range(len(prediction.ranks))]
    events: list[Event] = []
    for rank in range(len(prediction.ranks)):
        slices = list(rank_slices(prediction, rank, pieces, detailed=detailed))
        events += _rows(rank, slices)
        threads = _threads(slices)
        events += [_event(each, threads) for each in slices]
        events += _arrows(prediction, slices, begins)
    about = {"run": prediction.run.name, "about": run_text(prediction.run), "step_us": prediction.median_us}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}, detailed


def _detailed(prediction: Prediction, pieces: Pieces) -> int:
    """The actions of each rank whose operators the limit leaves room for."""
    rows = prediction.timeline.order.actions
    actions = sum(map(len, rows))
    if actions > MOST_ACTIONS:
        raise UserError(
            f"a trace holds at most {MOST_ACTIONS:,} actions, and this step has {actions:,}; take fewer microbatches"
        )
    left, most = MOST_ACTIONS - actions, max(map(len, rows))
    for place in range(most):
        left -= sum(
            len(pieces.of(getattr(rank.chunks[row[place].chunk], BUCKETS[row[place].kind])))
            for rank, row in zip(prediction.ranks, rows, strict=True)
            if place < len(row)
        )
        if left < 0:
            return place
    return most


def _threads(slices: list[Slice]) -> dict[str, int]:
    return {stream: number for number, stream in enumerate(streams_of(slices))}


def _rows(rank: int, slices: list[Slice]) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"pipeline rank {rank}"}}
    yield {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}
    for stream, thread in _threads(slices).items():
        yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": thread, "args": {"name": stream}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": rank, "tid": thread, "args": {"sort_index": thread}}


def _event(each: Slice, threads: dict[str, int]) -> Event:
    event: Event = {
        "ph": "X",
        "name": each.name,
        "cat": each.stream,
        "pid": each.rank,
        "tid": threads[each.stream],
        "ts": round(each.start_us, 3),
        "dur": round(each.time_us, 3),
    }
    if each.action and each.stream == ACTIONS:
        event |= {"cname": COLOURS[each.action.kind], "args": each.action._asdict()}
    if each.piece:
        item = each.piece.item
        told = {"call": item.call and call_text(item.call), "phase": item.phase, "source": item.source}
        event["args"] = {**told, "count": item.count, "heading": item.heading, "wait_us": each.piece.wait_us}
    return event


Begins = dict[tuple[bool, int, int, int], float]
"""(whether it is a forward, chain, stage, microbatch) → when a rank begins it, and so needs what it is sent for it."""


def _arrows(prediction: Prediction, slices: list[Slice], begins: list[Begins]) -> Iterator[Event]:
    """Arrows from each send to the action that takes what it brings."""
    placement, sends = prediction.timeline.order.placement, _threads(slices).get(SENDS, 0)
    holders = placement.holders()
    for each in slices:
        if each.stream != SENDS or not each.action:
            continue
        action, chain = each.action, placement.chains[each.action.chunk]
        forward = action.kind == "F"
        stage = placement.stages[each.rank][action.chunk] + (1 if forward else -1)
        rank, _ = holders[chain, stage]
        arrow = {"cat": "p2p", "name": "activation" if forward else "gradient"}
        arrow["id"] = f"{'F' if forward else 'B'} {chain} {stage} {action.microbatch}"
        sent = each.start_us + (1 - INSIDE) * each.time_us
        yield {**arrow, "ph": "s", "pid": each.rank, "tid": sends, "ts": round(sent, 3)}
        begun = begins[rank][forward, chain, stage, action.microbatch]
        yield {**arrow, "ph": "f", "bp": "e", "pid": rank, "tid": 0, "ts": round(begun, 3)}


def _begins(prediction: Prediction, rank: int) -> Begins:
    order = prediction.timeline.order
    stages, chains = order.placement.stages[rank], order.placement.chains
    starts = prediction.timeline.start[rank].tolist()
    return {
        (action.kind == "F", chains[action.chunk], stages[action.chunk], action.microbatch): start
        for action, start in zip(order.actions[rank], starts, strict=True)
        if action.kind != "W"
    }
