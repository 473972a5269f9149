"""One server with one model of its steps: times of batches, and the parts that make them up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from predict.serving.batch import StepBatch, sums_of
from predict.serving.coefficients import Coefficients, shipped_coefficients
from predict.serving.features import Features
from predict.serving.server import Server
from predict.serving.step_model import KERNELS, step_model
from predict.serving.step_table import StepTable
from predict.step.interval import Interval


@dataclass(frozen=True, eq=False)
class Stepper:
    """The steps of a server under a model's coefficients."""

    server: Server
    coefficients: Coefficients

    @cached_property
    def features(self) -> Features:
        return step_model(self.coefficients.model).features_of(self.server)

    @cached_property
    def table(self) -> StepTable:
        return step_model(self.coefficients.model).table_from(self.server, self.features, self.coefficients.values)

    def step_times(self, batches: Sequence[StepBatch]) -> tuple[Interval, ...]:
        """The time of each batch's step. UserError for a batch that the engine does not take."""
        low, _, high = self.coefficients.interval_factors
        times = self.table.times_us(sums_of(batches)).tolist()
        return tuple(Interval(median_us=time, low_us=low * time, high_us=high * time) for time in times)

    def ledger_us(self, batch: StepBatch) -> Mapping[str, float]:
        """Term of the model → its µs in the step of a batch; they add up to the step without its table's interpolation."""
        features = self.features(sums_of([batch]))[0]
        weights = self.coefficients.values
        names = list(step_model(self.coefficients.model).terms)
        return {name: float(weights[name] * value) for name, value in zip(names, np.asarray(features), strict=True)}


def stepper(server: Server, model: str = KERNELS.name) -> Stepper:
    """The steps of a server by the coefficients that come with a model. UserError for another model."""
    return Stepper(server, shipped_coefficients(model))
