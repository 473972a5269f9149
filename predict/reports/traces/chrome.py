"""A schedule's timeline, and a predicted step, as Chrome traces, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

The format: "Trace Event Format", Google, docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from predict.reports.text import call_text, run_text
from predict.reports.traces.pieces import COMPUTE, Piece, Pieces, scaled
from predict.schedules.engine.order import Action, ActionKind
from predict.schedules.engine.timing import Timeline
from predict.step.prediction import Prediction
from predict.step.priced_rank import BUCKETS
from sampling.errors import UserError
from sampling.files.disk import write_atomically

# A schedule's timeline.

COLOURS: dict[ActionKind, str] = {
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
    events = [*_rows_of_schedule(timeline, name), *_slices(timeline), *_flows(timeline)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _rows_of_schedule(timeline: Timeline, name: str) -> Iterator[dict[str, Any]]:
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


# A predicted step: a process a pipeline rank, a thread a stream.

ACTIONS, SENDS, REPLICAS = "pipeline", "pp", "dp"
"""Streams other than compute and those of the groups that blocks communicate in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """Work of a pipeline rank on one of its streams, in µs of the step."""

    rank: int
    stream: str
    name: str
    start_us: float
    time_us: float
    action: Action | None = None
    piece: Piece | None = None


def rank_slices(prediction: Prediction, rank: int, pieces: Pieces, *, detailed: int) -> Iterator[Slice]:
    """The slices of a rank; of its actions, the first `detailed` with their operators."""
    timeline, priced = prediction.timeline, prediction.ranks[rank]
    begins, ends = timeline.start[rank].tolist(), timeline.end[rank].tolist()
    for place, action in enumerate(timeline.order.actions[rank]):
        begin, end = begins[place], ends[place]
        chunk = priced.chunks[action.chunk]
        name = f"{action.kind} {action.microbatch}"
        yield Slice(rank=rank, stream=ACTIONS, name=name, start_us=begin, time_us=end - begin, action=action)
        if place < detailed:
            bucket = getattr(chunk, BUCKETS[action.kind])
            factor = (end - begin) / bucket.median_us if bucket.median_us else 1.0
            for piece in scaled(pieces.of(bucket), factor):
                yield _of_piece(rank, piece, begin, action)
        if action.kind != "W" and (sent := _send_us(prediction, rank, action)):
            yield Slice(rank=rank, stream=SENDS, name=f"send {name}", start_us=end, time_us=sent, action=action)
    yield from _step_end(prediction, rank, pieces, ends[-1])


def _of_piece(rank: int, piece: Piece, begin: float, action: Action | None) -> Slice:
    item = piece.item
    return Slice(
        rank=rank,
        stream=piece.stream,
        name=item.call.NAME if item.call else item.heading,
        start_us=begin + piece.start_us,
        time_us=piece.time_us,
        action=action,
        piece=piece,
    )


def _send_us(prediction: Prediction, rank: int, action: Action) -> float:
    """Time of the tensor that an action sends on, an activation to the next stage or a gradient to the one before."""
    placement = prediction.timeline.order.placement
    stage = placement.stages[rank][action.chunk]
    sender = stage if action.kind == "F" else stage - 1
    holder = placement.holders().get((placement.chains[action.chunk], sender))
    return prediction.ranks[holder[0]].chunks[holder[1]].send.median_us if holder else 0.0


def _step_end(prediction: Prediction, rank: int, pieces: Pieces, end: float) -> Iterator[Slice]:
    """Gradients over the replicas, which end when the rank's wait for them does, then the optimizer."""
    priced = prediction.ranks[rank]
    reduced_us = priced.blocking_reduction.median_us + priced.exposed_reduction_us
    whole_us = priced.blocking_reduction.median_us + priced.gradient_reduction.median_us
    if whole_us:
        start = max(0.0, end + reduced_us - whole_us)
        yield Slice(rank=rank, stream=REPLICAS, name="gradients", start_us=start, time_us=end + reduced_us - start)
    after = end + reduced_us
    if priced.exposed_all_gather_us:
        gathered_us = priced.exposed_all_gather_us
        yield Slice(rank=rank, stream=REPLICAS, name="parameters", start_us=after, time_us=gathered_us)
        after += gathered_us
    optimizer_us = priced.optimizer.median_us
    yield Slice(rank=rank, stream=ACTIONS, name="optimizer", start_us=after, time_us=optimizer_us)
    for piece in pieces.of(priced.optimizer):
        yield _of_piece(rank, piece, after, None)


def streams_of(slices: list[Slice]) -> list[str]:
    """The streams of a rank in the order of a trace's rows."""
    found = dict.fromkeys(each.stream for each in slices)
    return [ACTIONS, COMPUTE, *(stream for stream in found if stream not in (ACTIONS, COMPUTE))]


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
        details = {"call": item.call and call_text(item.call), "phase": item.phase, "source": item.source}
        event["args"] = {**details, "count": item.count, "heading": item.heading, "wait_us": each.piece.wait_us}
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
