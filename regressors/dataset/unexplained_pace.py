"""The part of the machine's pace that its readings leave unexplained: how far all rows of a moment are off together at their pace.

Rows of one call at several moments are brought to the reference pace by the readings beside them. Where rows of other calls at the same
moment are off the same way, the readings missed a part of the pace; so will the readings beside a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from regressors.dataset.device_facts import Z_90
from regressors.features.arrays import Floats, Indices
from sampling.hardware.cluster import Cluster
from sampling.store.pace import MOST_RESIDUAL

if TYPE_CHECKING:  # predicting needs no rows
    from sampling.store.sample import Sample

TOGETHER_S = 10.0
"""Seconds within which rows count as of one moment."""
MOST_BESIDE = 100
"""Rows of a moment that a row is compared with, so that the pairs of a long session fit in memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unexplained:
    """Standard deviations in log time of work at a moment whose pace was read: at the reference pace, and for each unit by which the
    logarithm of its pace differs from it."""

    at_reference: float = 0.0
    by_log_pace: float = 0.0

    def half_width(self, log_pace: float) -> float:
        """Half-width in log time at 90 % of work at a pace with this logarithm."""
        return Z_90 * math.hypot(self.at_reference, self.by_log_pace * log_pace)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def unexplained(rows: Sequence[tuple[Sample, Cluster]]) -> Unexplained:
    """The covariance of two rows of one moment and different calls, as a constant and a part that grows with both paces; neither is
    negative. A pair counts by the time of its rows, since steps are made of the long ones."""
    by_call: dict[Any, list[Sample]] = {}
    for sample, _ in rows:
        if sample.at_s is not None:
            by_call.setdefault(sample.key, []).append(sample)
    again = [of for of in by_call.values() if len(of) > 1]
    if len(again) < 2:
        return Unexplained()
    residual = np.concatenate([_residual(of) for of in again])
    of_call = np.repeat(np.arange(len(again)), [len(of) for of in again])
    flat = [sample for of in again for sample in of]
    log_pace = np.log([sample.pace for sample in flat])
    time_us = np.array([sample.time_us for sample in flat])
    first, second = _pairs(np.array([sample.at_s for sample in flat], dtype=np.float64))
    of_two = of_call[first] != of_call[second]
    first, second = first[of_two], second[of_two]
    if not len(first):
        return Unexplained()
    from scipy.optimize import nnls

    weight = np.sqrt(np.sqrt(time_us[first] * time_us[second]))
    paces = log_pace[first] * log_pace[second]
    found, _ = nnls(np.column_stack([weight, weight * paces]), weight * residual[first] * residual[second])
    return Unexplained(at_reference=math.sqrt(found[0]), by_log_pace=math.sqrt(found[1]))


def _residual(rows: Sequence[Sample]) -> Floats:
    """The distance in log of each row of a call, at the reference pace, from their mean, which takes a part of each with it."""
    log_us = np.log([sample.time_us * sample.pace for sample in rows])
    scale = math.sqrt(len(rows) / (len(rows) - 1))
    residual: Floats = np.clip(scale * (log_us - log_us.mean()), -MOST_RESIDUAL, MOST_RESIDUAL)
    return residual


def _pairs(at_s: Floats) -> tuple[Indices, Indices]:
    """The places of the two rows of each pair that is of one moment [pairs], each row with at most MOST_BESIDE that follow it."""
    order = np.argsort(at_s, kind="stable")
    ordered = at_s[order]
    after = np.searchsorted(ordered, ordered + TOGETHER_S, side="right") - np.arange(1, len(at_s) + 1)
    count = np.minimum(after, MOST_BESIDE)
    first = np.repeat(np.arange(len(at_s)), count)
    ahead = np.arange(len(first)) - np.repeat(np.cumsum(count) - count, count)
    return order[first], order[first + 1 + ahead]
