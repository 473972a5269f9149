"""Slices of a step: on every pipeline rank its actions, their operators, and the communication beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from predict.report.traces.pieces import COMPUTE, Piece, Pieces, scaled
from predict.schedules.engine.order import Action
from predict.step.prediction import Prediction
from predict.step.priced_rank import BUCKETS

ACTIONS, SENDS, REPLICAS = "pipeline", "pp", "dp"
"""Streams beside compute and those of the groups that blocks communicate in."""


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
