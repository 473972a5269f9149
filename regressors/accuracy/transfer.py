"""Transfer: one device's model scored on another device's rows, unchanged and corrected with a few hundred of those rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from regressors.accuracy.score import fit_timed, subset
from regressors.accuracy.units import Unit
from regressors.bank.fitted_operator import Columns, FittedOperator
from regressors.dataset.donor import Donor
from regressors.dataset.splits import random_rows
from regressors.dataset.training_data import TrainingData, training_data
from regressors.features.arrays import Mask
from regressors.features.pricing import price_all
from regressors.uncertainty.intervals import half_width_elsewhere
from sampling.hardware.cluster import Cluster

DONOR_ROWS = 9_000
"""Rows of the first device to fit; more do not improve the transfer."""
OWN_ROWS = 300
TEST_ROWS = 6_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """Errors in percent on rows of the `target` device of a model of the `source` device.

    `own_rows` is the number of other rows of the target that the model was corrected with, `log_error_90` the half-width in
    log time that would have covered 90 % of the rows.
    """

    source: str
    target: str
    family: str
    own_rows: int
    rows: int
    mape: float
    p90: float
    coverage: float
    log_error_90: float


def transfers(units: Sequence[Unit]) -> Iterator[Transfer]:
    """Every pair of devices with tables of a family, except collectives: the catalogue describes their links too coarsely."""
    usable = [unit for unit in units if unit.family not in ("", "nccl") and unit.data is not None]
    for source in usable:
        others = [unit for unit in usable if unit.family == source.family and _device(unit) != _device(source)]
        if others:
            assert source.data is not None
            donor, _ = fit_timed(subset(source.data, random_rows(len(source.data), DONOR_ROWS)))
            for target in others:
                yield from _transfer(source, donor, target)


def _transfer(source: Unit, donor: FittedOperator, target: Unit) -> Iterator[Transfer]:
    assert source.cluster and target.cluster and target.data is not None
    own = random_rows(len(target.calls), OWN_ROWS)
    tested = ~own & random_rows(len(target.calls), TEST_ROWS + OWN_ROWS)
    calls = [call for call, wanted in zip(target.calls, tested, strict=True) if wanted]
    priced = price_all(calls, target.data.key.phase, target.cluster)
    codes = np.array([row.codes for row in priced])
    elsewhere = half_width_elsewhere(source.cluster.gpu.architecture, target.cluster.gpu.architecture)
    carried = donor.columns(*donor.schema.matrices(priced), codes, elsewhere=elsewhere)
    yield _scored(source, target, 0, carried, tested)
    few = _lent(target, Donor(schema=donor.schema, model=donor.model), target.cluster)
    fitted, _ = fit_timed(subset(few, own))
    refined = fitted.columns(few.terms[tested], few.features[tested], few.codes[tested])
    yield _scored(source, target, OWN_ROWS, refined, tested)


def _lent(target: Unit, donor: Donor, cluster: Cluster) -> TrainingData:
    (data,) = training_data(((sample, cluster) for sample in target.samples), lambda key: donor)
    return data


def _scored(source: Unit, target: Unit, own_rows: int, predicted: Columns, tested: Mask) -> Transfer:
    assert target.data is not None
    time_us = target.data.time_us[tested]
    error = 100 * np.abs(predicted.median_us / time_us - 1)
    log_error = np.abs(np.log(predicted.median_us / time_us))
    return Transfer(
        source=_device(source),
        target=_device(target),
        family=target.family,
        own_rows=own_rows,
        rows=len(time_us),
        mape=float(error.mean()),
        p90=float(np.quantile(error, 0.9)),
        coverage=float((log_error <= predicted.half_width).mean()),
        log_error_90=float(np.quantile(log_error, 0.9)),
    )


def _device(unit: Unit) -> str:
    return unit.group[1]
