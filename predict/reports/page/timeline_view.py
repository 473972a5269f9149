"""The pipeline timeline of a page: every action of every rank, and what each kind of action is made of.

An action is three numbers: the gap before it in µs, its microbatch, and a code whose duration and operators stand in a table,
so that ten thousand of them take 100 kB. Behind the last action of a rank come its gradients and its optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from predict.prices.price_list import Prices
from predict.reports.palette import KIND_NAMES, fill, paint, paint_codes
from predict.reports.text import call_text
from predict.schedules.engine.order import MICROBATCH
from predict.schedules.engine.timing import Timeline
from predict.step.breakdown import Item, items_of_block
from predict.step.prediction import Prediction
from predict.step.priced_block import Bucket, PricedBlock
from predict.step.priced_rank import BUCKETS, PricedRank

MOST_ACTIONS = 20_000
"""Actions of a page: about 200 kB. Of a longer step the repeats of its steady state are left out."""
MOST_OPERATORS = 60
"""Operators listed for an action, the longest first; the rest are one line."""
GRADIENTS, OPTIMIZER = "gradients", "optimizer"
STEP_END = {GRADIENTS: "#b0689e", OPTIMIZER: "#7a828f"}
"""Colours of what follows the pipeline."""


def timeline_view(prediction: Prediction) -> dict[str, Any]:
    """Times in µs. `left_out_us` is the time of the repeats that are not drawn; 0 where all actions are."""
    timeline = prediction.timeline
    long = sum(len(rows) for rows in timeline.core.order.rows) > MOST_ACTIONS
    drawn = timeline if _actions(timeline) <= MOST_ACTIONS else timeline.core
    ranks = _spread(len(prediction.ranks), max(2, MOST_ACTIONS // len(drawn.order.rows[0]))) if long else None
    shown = list(range(len(prediction.ranks))) if ranks is None else ranks
    operators = Operators(prediction.prices)
    chunks = len(timeline.order.placement.chains)
    return {
        "schedule": prediction.run.plan.schedule,
        "chunks": chunks,
        "kinds": {kind: KIND_NAMES[kind] for kind in KIND_NAMES},
        "microbatches": prediction.run.microbatches,
        "left_out_us": timeline.makespan - drawn.makespan,
        "bubble": prediction.bubble_fraction,
        "ranks": [_rank_view(prediction.ranks[rank], drawn, rank, operators) for rank in shown],
        "colours": {str(code): fill(*paint(code, chunks), chunks) for code in _codes(drawn)} | STEP_END,
        "operators": operators.rows,
    }


def _actions(timeline: Timeline) -> int:
    form = timeline.form
    count = sum(len(rows) for rows in timeline.core.order.rows)
    return count + (form.more * sum(form.lengths) if form else 0)


def _spread(ranks: int, most: int) -> list[int]:
    """Up to `most` ranks, evenly spread, the first and the last among them."""
    return sorted({round(place) for place in np.linspace(0, ranks - 1, min(ranks, most))})


def _codes(timeline: Timeline) -> set[int]:
    return {
        code for rank in range(timeline.order.ranks) for code in np.unique(paint_codes(timeline.order, rank)).tolist()
    }


def _rank_view(rank: PricedRank, timeline: Timeline, number: int, operators: Operators) -> dict[str, Any]:
    start, end = (np.round(times).astype(np.int64) for times in (timeline.start[number], timeline.end[number]))
    codes, lasting = paint_codes(timeline.order, number), end - start
    chunks = len(timeline.order.placement.chains)
    actions, usual = {}, np.zeros_like(lasting)
    for code in np.unique(codes).tolist():
        kind, chunk = paint(code, chunks)
        usual[codes == code] = length = int(np.median(lasting[codes == code]))
        bucket = getattr(rank.chunks[chunk], BUCKETS[kind])
        actions[str(code)] = {"us": length, "operators": operators.number(bucket)}
    reduced = rank.blocking_reduction + rank.gradient_reduction + rank.parameter_all_gather
    return {
        "rank": number,
        "stages": list(timeline.order.placement.stages[number]),
        "steps": np.diff(start, prepend=0).tolist(),
        "codes": codes.tolist(),
        "microbatches": timeline.order.rows[number][:, MICROBATCH].tolist(),
        "unusual": {str(place): int(lasting[place]) for place in np.flatnonzero(abs(lasting - usual) > 1).tolist()},
        "actions": actions,
        GRADIENTS: {"us": rank.exposed_us, "operators": operators.number(reduced)},
        OPTIMIZER: {"us": rank.optimizer.median_us, "operators": operators.number(rank.optimizer)},
    }


class Operators:
    """The operators of buckets, each bucket's under a number; equal ones share theirs."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._numbers: dict[Bucket, int] = {}
        self._of_blocks: dict[PricedBlock, tuple[Item, ...]] = {}
        self.rows: list[list[list[Any]]] = []

    def number(self, bucket: Bucket) -> int:
        """The number under which the operators of a bucket stand."""
        if bucket not in self._numbers:
            rows = list(self._rows(bucket))
            if rows not in self.rows:
                self.rows.append(rows)
            self._numbers[bucket] = self.rows.index(rows)
        return self._numbers[bucket]

    def _rows(self, bucket: Bucket) -> Iterator[list[Any]]:
        """[operator, what it counts as, count, µs, source] of a bucket, the longest first."""
        times: dict[tuple[str, str, str], list[float]] = {}
        for repeated in bucket.blocks:
            for item in self._items(repeated.priced):
                name = call_text(item.call) if item.call else item.heading
                found = times.setdefault((name, item.heading, item.source or ""), [0.0, 0.0])
                found[0] += repeated.count * item.count
                found[1] += repeated.count * item.time_us
        rows = sorted(times.items(), key=lambda entry: -entry[1][1])
        for (name, heading, source), (count, time_us) in rows[:MOST_OPERATORS]:
            yield [name, heading, round(count, 3), round(time_us, 3), source]
        if more := rows[MOST_OPERATORS:]:
            count, time_us = (sum(totals[place] for _, totals in more) for place in (0, 1))
            yield [f"{len(more)} more", "", round(count, 3), round(time_us, 3), ""]

    def _items(self, block: PricedBlock) -> tuple[Item, ...]:
        if block not in self._of_blocks:
            self._of_blocks[block] = items_of_block(block, self._prices)
        return self._of_blocks[block]
