"""What a model of another device knows, lent to the model of this one.

The donor's time, priced at this device's peaks, joins the roofline terms. Where the devices are alike the fit takes it as
it is and a few hundred rows correct it; where they are not, the fit gives it no weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from regressors.features.pricing import ModelKey, Priced
from regressors.features.schema import LENT, Schema
from regressors.models.time_model import TimeModel


@dataclass(frozen=True, kw_only=True, slots=True)
class Donor:
    """The model of the same operator on another device, and the columns it looks at."""

    schema: Schema
    model: TimeModel

    def lend(self, priced: Sequence[Priced]) -> list[Priced]:
        """The calls with the donor's time among their terms; SamplesError for calls whose columns it does not know."""
        times_us = self.model.time_us(*self.schema.matrices(priced)).tolist()
        return [row._replace(terms={**row.terms, LENT: time_us}) for row, time_us in zip(priced, times_us, strict=True)]


Donors: TypeAlias = Callable[[ModelKey], Donor | None]


def no_donor(key: ModelKey) -> None:
    """For a profile that stands by itself."""
