"""The boxes of a schedule's picture: one for each action, or where those would be too thin, lanes of merged ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predict.report.pictures.timeline.time_axis import TimeAxis
from predict.report.schedules.palette import paint_codes
from predict.schedules.engine.order import MICROBATCH
from predict.schedules.engine.timeline import Timeline
from regressors.features.arrays import Floats

Integers = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, slots=True)
class Boxes:
    """The boxes of a rank: spans of places on the axis, the codes of their colours, and the microbatches where each box is
    one action."""

    start: Floats
    end: Floats
    codes: Integers
    microbatches: Integers | None = None


def box_per_action(timeline: Timeline, rank: int, axis: TimeAxis) -> Boxes:
    """A box for each action of the rank that is shown."""
    start, end, index = axis.shown(timeline.start[rank], timeline.end[rank])
    microbatches = timeline.order.rows[rank][index, MICROBATCH].astype(np.intp)
    return Boxes(start=start, end=end, codes=paint_codes(timeline.order, rank)[index], microbatches=microbatches)


def merged(boxes: Boxes, gap: float) -> Boxes:
    """A box for each run of boxes of one colour that are less than `gap` apart, whatever lies between them."""
    by_code = np.lexsort((boxes.start, boxes.codes))
    start, end, codes = boxes.start[by_code], boxes.end[by_code], boxes.codes[by_code]
    apart = (np.diff(codes) != 0) | (start[1:] - end[:-1] >= gap)
    first = np.flatnonzero(np.concatenate([[True], apart]))
    last = np.append(first[1:], len(start)) - 1
    return Boxes(start=start[first], end=end[last], codes=codes[first])
