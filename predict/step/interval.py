"""The step's 90 % interval: each kind of call pushed to its bounds through the schedule, then combined.

Errors of one kind of call (name and phase) move together, since one model predicts them all; errors of different kinds
are independent, and so is that of the composition itself. Independent contributions add in quadrature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from predict.schedules.engine import ChunkTimes, makespans
from predict.schedules.order import Order
from predict.step.costing import Priced
from predict.step.stage import Bucket, PricedStage

Floats = NDArray[np.float64]
Kind = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A time in µs with its 90 % bounds."""

    median_us: float
    low_us: float
    high_us: float


def step_interval(step_us: float, order: Order, stages: tuple[PricedStage, ...], composition_error: float) -> Interval:
    """Bounds about `step_us`. `composition_error` is the relative half-width of what no call's interval covers."""
    kinds = sorted({_kind(unit) for stage in stages for bucket in _buckets(stage) for unit in bucket.units})
    high, low = (_shifts(order, stages, kinds, side) for side in ("high", "low"))
    composition_us = composition_error * step_us
    above = math.hypot(composition_us, *np.maximum(high, 0.0))
    below = math.hypot(composition_us, *np.minimum(low, 0.0))
    return Interval(median_us=step_us, low_us=max(step_us - below, step_us / 10), high_us=step_us + above)


def _buckets(stage: PricedStage) -> tuple[Bucket, ...]:
    return stage.forward, stage.backward, stage.gradients, stage.step, stage.send


def _kind(unit: Priced) -> Kind:
    return unit.call.NAME, unit.phase


def _shifts(
    order: Order, stages: tuple[PricedStage, ...], kinds: list[Kind], side: Literal["low", "high"]
) -> list[float]:
    """By how much the step changes when one kind of call at a time takes its bound."""
    forward, backward, send, after = (
        np.array([_pushed(getter(stage), kinds, side) for stage in stages])
        for getter in (
            lambda stage: (stage.forward,),
            lambda stage: (stage.backward,),
            lambda stage: (stage.send,),
            lambda stage: (stage.gradients, stage.step),
        )
    )
    times = ChunkTimes(
        forward=forward.T[:, :, None],
        backward_input=0.0,
        backward_weight=0.0,
        backward=backward.T[:, :, None],
        p2p=np.repeat(send.max(axis=0)[:, None], max(1, len(stages) - 1), axis=1)[:, : len(stages) - 1],
    )
    whole = makespans(order, times) + after.max(axis=0)
    shifts: list[float] = (whole[1:] - whole[0]).tolist()
    return shifts


def _pushed(buckets: tuple[Bucket, ...], kinds: list[Kind], side: Literal["low", "high"]) -> Floats:
    """The buckets' sum as it is, then with each kind at its bound, shape (1 + kinds,)."""
    place = {kind: index for index, kind in enumerate(kinds, start=1)}
    sums = np.full(1 + len(kinds), sum(bucket.median_us for bucket in buckets))
    for bucket in buckets:
        for unit in bucket.units:
            bound = unit.time.high_us if side == "high" else unit.time.low_us
            sums[place[_kind(unit)]] += unit.count * (bound - unit.time.median_us)
    pushed: Floats = np.maximum(sums, 0.0)
    return pushed
