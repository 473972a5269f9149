"""A donor: the model of the same operator on another device, whose times help to fit this device's model.

The donor's time, computed with this device's peaks, becomes one of the roofline terms. If the devices are alike, the fit
adopts it and a few hundred rows correct it; if they are not, the fit gives it no weight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from regressors.features.pricing import ModelKey, Priced
from regressors.features.schema import LENT, Schema
from regressors.models.time_model import TimeModel


@dataclass(frozen=True, kw_only=True, slots=True)
class Donor:
    """A time model and its columns."""

    schema: Schema
    model: TimeModel

    def lend(self, priced: Sequence[Priced]) -> list[Priced]:
        """The calls with the donor's time among their terms; SamplesError for calls whose columns the donor lacks."""
        times_us = self.model.time_us(*self.schema.matrices(priced)).tolist()
        return [row._replace(terms={**row.terms, LENT: time_us}) for row, time_us in zip(priced, times_us, strict=True)]


Donors: TypeAlias = Callable[[ModelKey], Donor | None]


def no_donor(key: ModelKey) -> None:
    """The donors of a profile that is fitted by itself."""
