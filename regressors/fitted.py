"""A fitted operator: everything that a look-up needs, and the look-up itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regressors.features import ModelKey, Priced, Schema
from regressors.intervals import Domain, Intervals
from regressors.measured import MeasuredTable
from regressors.model import TimeModel
from regressors.times import Source, Times


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedOperator:
    """A model of one (call name, phase, threads) with what says how far to trust it."""

    key: ModelKey
    schema: Schema
    model: TimeModel
    intervals: Intervals
    domain: Domain
    measured: MeasuredTable

    def predict(self, priced: Sequence[Priced], *, elsewhere: bool = False) -> list[Times]:
        """Times by the model alone; raises SamplesError for columns it was not fitted on.

        `elsewhere`: they were priced at the peaks of another device than the sampled one.
        """
        terms, features = self.schema.matrices(priced)
        octaves = self.domain.octaves_beyond(self.model.base.time_us(terms))
        median = self.model.time_us(terms, features)
        sources: list[Source]
        if elsewhere:
            half = self.intervals.half_width_elsewhere(octaves)
            sources = ["transferred"] * len(priced)
        else:
            inside = self.domain.contains(terms, features)
            half = self.intervals.half_width(inside, octaves)
            sources = ["measured" if near else "extrapolated" for near in inside.tolist()]
        factor = np.exp(half)
        columns = (median.tolist(), (median / factor).tolist(), (median * factor).tolist(), sources)
        return [
            Times(median_us=mid, low_us=low, high_us=high, source=source)
            for mid, low, high, source in zip(*columns, strict=True)
        ]

    def look_up(self, shapes: Sequence[int]) -> list[Times | None]:
        """Times of the shapes (digests) that were themselves sampled, None for the others."""
        table = self.measured
        wanted: NDArray[np.uint64] = np.array(shapes, dtype=np.uint64)
        place = np.minimum(np.searchsorted(table.shape, wanted), len(table.shape) - 1)
        return [
            Times(
                median_us=float(table.median_us[row]),
                low_us=float(table.low_us[row]),
                high_us=float(table.high_us[row]),
                source="measured",
            )
            if found
            else None
            for row, found in zip(place, table.shape[place] == wanted, strict=True)
        ]
