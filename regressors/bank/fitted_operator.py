"""A fitted operator: its model, its intervals and its sampled times, and predictions from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regressors.bank.times import Source, Times
from regressors.dataset.donor import Donor
from regressors.features.arrays import Floats
from regressors.features.pricing import ModelKey, Priced
from regressors.features.schema import Schema
from regressors.models.domain import Domain
from regressors.models.time_model import TimeModel
from regressors.uncertainty.intervals import Intervals, Novelty
from regressors.uncertainty.sampled_times import SampledTimes


class Columns(NamedTuple):
    """Predictions [calls]: median, half-width of the 90 % interval in log time, and whether the call is in the domain."""

    median_us: Floats
    half_width: Floats
    inside: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedOperator:
    """The model of one (call name, phase, threads) and what its intervals are computed from."""

    key: ModelKey
    schema: Schema
    model: TimeModel
    intervals: Intervals
    domain: Domain
    novelty: Novelty
    sampled_times: SampledTimes
    donor: Donor | None = None

    def predict(self, priced: Sequence[Priced], *, elsewhere: float = 0.0) -> list[Times]:
        """Times from the model alone; SamplesError for columns that it was not fitted to.

        `elsewhere` is the half-width added if the calls were priced for another device than the sampled one; 0 if not.
        """
        if self.donor:
            priced = self.donor.lend(priced)
        terms, features = self.schema.matrices(priced)
        columns = self.columns(terms, features, np.array([row.codes for row in priced]), elsewhere=elsewhere)
        factor = np.exp(columns.half_width)
        low_us, high_us = columns.median_us / factor, columns.median_us * factor
        sources: list[Source] = (
            ["transferred"] * len(priced)
            if elsewhere
            else ["measured" if near else "extrapolated" for near in columns.inside.tolist()]
        )
        return [
            Times(median_us=mid, low_us=low, high_us=high, source=source)
            for mid, low, high, source in zip(
                columns.median_us.tolist(), low_us.tolist(), high_us.tolist(), sources, strict=True
            )
        ]

    def columns(self, terms: Floats, features: Floats, codes: Floats, *, elsewhere: float = 0.0) -> Columns:
        """`predict` from matrices: terms, features and codes [calls, …]."""
        octaves = self.domain.octaves_beyond(self.model.base.time_us(terms))
        new = self.novelty.half_width(codes)
        inside = self.domain.contains(terms, features) & ~self.novelty.beyond_range(codes)
        half_width = np.hypot(np.maximum(self.intervals.half_width(inside, octaves), new), elsewhere)
        median_us = self.model.time_us(terms, features, None if elsewhere else self.domain)
        return Columns(median_us=median_us, half_width=half_width, inside=inside)

    def look_up(self, shapes: Sequence[int]) -> list[Times | None]:
        """Times of the shapes (digests) that were sampled themselves; None for the others."""
        table = self.sampled_times
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
