"""A model of another device lends its time; a few rows of the new device correct it."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regressors.bank import artifact
from regressors.bank.bank import Bank
from regressors.bank.fitted_operator import FittedOperator
from regressors.dataset.donor import Donor
from regressors.dataset.training_data import training_data
from regressors.features.digests import hardware_digest
from regressors.features.pricing import price
from regressors.features.schema import LENT
from regressors.fitting.fit import fit_operator
from tests.regressors.synthetic_operators import (
    CLUSTER,
    Product,
    random_products,
    roofline_time,
    sample,
    sampled,
    without_smooth_correction,
)

NEW = replace(CLUSTER, gpu=replace(CLUSTER.gpu, name="new", memory_gb_per_s=2 * CLUSTER.gpu.memory_gb_per_s))
FACTS = {"profile": "new", "architecture": "synthetic", "hardware": {"0": hardware_digest(NEW)}}


def wavy(call: Product) -> float:
    """A time with a ripple that no roofline has, and that both devices share."""
    return roofline_time(call) * math.exp(0.4 * math.sin(2.5 * math.log2(call.n)))


def on_new(call: Product) -> float:
    return 0.8 * wavy(call)


@pytest.fixture(scope="module")
def donor() -> Donor:
    with without_smooth_correction():
        fitted = fit_operator(sampled(random_products(300, seed=0), truth=wavy))[0]
    return Donor(schema=fitted.schema, model=fitted.model)


def fit_on_new(count: int, donor: Donor | None) -> FittedOperator:
    rows = [(sample(call, on_new(call)), NEW) for call in random_products(count, seed=7)]
    return fit_operator(training_data(rows, lambda key: donor)[0])[0]


def mape(fitted: FittedOperator) -> float:
    fresh = random_products(200, seed=9)
    times = fitted.predict([price(call, "forward", NEW) for call in fresh])
    return float(np.mean([abs(t.median_us / on_new(call) - 1) for t, call in zip(times, fresh, strict=True)]))


def test_a_lent_time_spares_most_of_the_samples(donor: Donor) -> None:
    alone, helped = mape(fit_on_new(25, None)), mape(fit_on_new(25, donor))
    assert helped < 0.5 * alone


def test_what_was_lent_stays_with_the_model(donor: Donor, tmp_path: Path) -> None:
    fitted = fit_on_new(25, donor)
    assert LENT in fitted.schema.terms
    artifact.save(tmp_path, [fitted], FACTS)
    call = Product(m=700, n=900, k=1100)
    (times,) = Bank.load(tmp_path).times([(call, "forward")], NEW)
    assert times == fitted.predict([price(call, "forward", NEW)])[0]


def test_a_model_that_was_lent_to_lends_nothing_on(donor: Donor, tmp_path: Path) -> None:
    fitted, plain = fit_on_new(25, donor), fit_on_new(25, None)
    artifact.save(tmp_path, [fitted], FACTS)
    assert artifact.load(tmp_path).donor(fitted.key) is None
    artifact.save(tmp_path, [plain], FACTS)
    assert artifact.load(tmp_path).donor(plain.key) is not None


def test_a_donor_that_does_not_know_the_calls_lends_nothing(donor: Donor) -> None:
    other = replace(donor, schema=replace(donor.schema, features=(*donor.schema.features, "zeal")))
    assert fit_on_new(10, other).donor is None
