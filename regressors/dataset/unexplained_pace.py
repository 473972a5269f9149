"""The part of the machine's pace that its readings leave unexplained: how far all rows of a moment are off together at their pace.

Rows of one call at several moments are brought to the reference pace by the readings beside them. Where rows of other calls at the same
moment are off the same way, the readings missed a part of the pace; so will the readings beside a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sampling.hardware.cluster import Cluster
from sampling.store.sample import Sample

TOGETHER_S = 10.0
"""Seconds within which rows count as of one moment."""
MOST_RESIDUAL = 0.3
"""Distance in log from the other rows of its call beyond which a row counts as at this distance."""
LIKE_A_NORMAL = 1.645
"""Half-width at 90 % over the standard deviation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unexplained:
    """Standard deviations in log time of work at a moment whose pace was read: at the reference pace, and for each unit by which the
    logarithm of its pace differs from it."""

    at_reference: float = 0.0
    by_log_pace: float = 0.0

    def half_width(self, log_pace: float) -> float:
        """Half-width in log time at 90 % of work at a pace with this logarithm."""
        return LIKE_A_NORMAL * math.hypot(self.at_reference, self.by_log_pace * log_pace)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def unexplained(rows: Sequence[tuple[Sample, Cluster]]) -> Unexplained:
    """The covariance of two rows of one moment and different calls, as a constant and a part that grows with both paces; neither is
    negative. A pair counts by the time of its rows, since steps are made of the long ones."""
    by_call: dict[Any, list[Sample]] = {}
    for sample, _ in rows:
        if sample.at_s is not None:
            by_call.setdefault((sample.call, sample.phase), []).append(sample)
    again = [of for of in by_call.values() if len(of) > 1]
    if len(again) < 2:
        return Unexplained()
    # the mean over n rows takes a part of each with it
    residual = np.concatenate(
        [np.sqrt(len(of) / (len(of) - 1)) * (each - each.mean()) for of in again for each in (_log_us(of),)]
    ).clip(-MOST_RESIDUAL, MOST_RESIDUAL)
    of_call = np.repeat(np.arange(len(again)), [len(of) for of in again])
    flat = [sample for of in again for sample in of]
    at_s = np.array([sample.at_s for sample in flat], dtype=np.float64)
    log_pace = np.log([sample.pace for sample in flat])
    time_us = np.array([sample.time_us for sample in flat])
    first, second = np.triu_indices(len(flat), 1)
    together = (np.abs(at_s[first] - at_s[second]) <= TOGETHER_S) & (of_call[first] != of_call[second])
    first, second = first[together], second[together]
    if not len(first):
        return Unexplained()
    from scipy.optimize import nnls

    weight = np.sqrt(np.sqrt(time_us[first] * time_us[second]))
    paces = log_pace[first] * log_pace[second]
    found, _ = nnls(np.column_stack([weight, weight * paces]), weight * residual[first] * residual[second])
    return Unexplained(at_reference=math.sqrt(found[0]), by_log_pace=math.sqrt(found[1]))


def _log_us(rows: Sequence[Sample]) -> np.ndarray:
    return np.log([sample.time_us * sample.pace for sample in rows])
