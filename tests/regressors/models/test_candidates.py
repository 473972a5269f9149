import numpy as np
import pytest

from regressors.dataset.training_data import TrainingData
from regressors.features.pricing import price
from regressors.fitting.fit import fit_operator
from regressors.fitting.selection import choose, compare
from regressors.models.candidates import (
    BLEND,
    BLENDED,
    CANDIDATES,
    ROOFLINE,
    SMOOTH_ROWS,
    TREES,
    fit_candidate,
    fit_candidates,
)
from regressors.models.domain import learn_domain
from sampling.call import Call
from tests.regressors.synthetic_operators import CLUSTER, Product, random_products, roofline_time, sampled

HYBRIDS = [*BLENDED, BLEND]


def mape(candidate: str, data: TrainingData, calls: list[Product]) -> float:
    model = fit_candidate(candidate, data.terms, data.features, data.time_us)
    fresh = sampled(calls)
    return float(np.mean(np.abs(model.time_us(fresh.terms, fresh.features) / fresh.time_us - 1)))


@pytest.mark.parametrize("candidate", ["roofline", *HYBRIDS])
def test_recovers_a_noisy_roofline_and_extrapolates(candidate: str) -> None:
    data = sampled(random_products(60, seed=0, high=1024), noise=0.02)
    assert mape(candidate, data, random_products(200, seed=1, high=1024)) < 0.03
    larger = [Product(m=8 * call.m, n=call.n, k=call.k) for call in random_products(50, seed=2, low=600, high=1024)]
    assert mape(candidate, data, larger) < 0.05


@pytest.mark.parametrize("candidate", TREES)
def test_trees_alone_saturate_and_as_candidates_leave_what_is_beyond_to_the_roofline(candidate: str) -> None:
    data = sampled(random_products(60, seed=0, high=1024), noise=0.02)
    model = fit_candidate(candidate, data.terms, data.features, data.time_us)
    within = learn_domain(data.terms, data.features, model.base.time_us(data.terms))
    larger = [Product(m=8 * call.m, n=call.n, k=call.k) for call in random_products(50, seed=2, low=600, high=1024)]
    fresh = sampled(larger)
    assert np.abs(model.trees_us(fresh.features) / fresh.time_us - 1).mean() > 0.5
    assert np.abs(model.time_us(fresh.terms, fresh.features, within) / fresh.time_us - 1).mean() < 0.05


@pytest.mark.parametrize("candidate", TREES)
def test_time_does_not_fall_as_work_grows_beyond_the_samples(candidate: str) -> None:
    def slow_when_large(call: Call) -> float:
        return roofline_time(call) * (3.0 if call.fields()["m"] > 2048 else 1.0)

    data = sampled(random_products(60, seed=0), truth=slow_when_large, noise=0.02)
    model = fit_candidate(candidate, data.terms, data.features, data.time_us)
    within = learn_domain(data.terms, data.features, model.base.time_us(data.terms))
    growing = sampled([Product(m=2**power, n=4096, k=4096) for power in range(12, 22)])
    times_us = model.time_us(growing.terms, growing.features, within)
    assert (np.diff(times_us) >= 0).all()
    assert times_us[-1] > 100 * times_us[0]


@pytest.mark.parametrize("candidate", TREES)
def test_trees_know_no_other_device(candidate: str) -> None:
    data = sampled(random_products(60, seed=0), noise=0.02)
    model = fit_candidate(candidate, data.terms, data.features, data.time_us)
    assert model.time_us(data.terms / 2, data.features).tobytes() == model.base.time_us(data.terms / 2).tobytes()


def narrow_is_slow(call: Call) -> float:
    """Up to twice the roofline for few output features, as a kernel with too few tiles would be."""
    return roofline_time(call) * float(1.5 - 0.5 * np.tanh(np.log2(call.fields()["n"]) - 9))


@pytest.mark.parametrize("candidate", HYBRIDS)
def test_corrections_learn_what_the_roofline_misses(candidate: str) -> None:
    data = sampled(random_products(80, seed=0), truth=narrow_is_slow)
    errors = compare(data, (ROOFLINE, candidate))
    assert np.abs(errors[candidate].unseen).mean() < 0.5 * np.abs(errors["roofline"].unseen).mean()


def test_a_clean_roofline_needs_no_correction() -> None:
    """One that is hardly better does not win over the blend, which may learn more: noise alone must not decide."""
    clean = compare(sampled(random_products(40, seed=0), noise=0.02), (ROOFLINE, BLEND))
    every_row = np.ones(40, dtype=np.bool_)
    assert clean[choose(clean, every_row)].score(every_row) < 1.05 * clean[ROOFLINE].score(every_row)


@pytest.mark.parametrize("rows", [50, SMOOTH_ROWS])
def test_the_blend_is_the_mean_of_its_parts(rows: int) -> None:
    data = sampled(random_products(rows, seed=0, high=1024), truth=narrow_is_slow, noise=0.05)
    parts = HYBRIDS[:-1] if rows < SMOOTH_ROWS else HYBRIDS[1:-1]
    models = fit_candidates(HYBRIDS, data.terms, data.features, data.time_us)
    logs = {name: np.log(model.time_us(data.terms, data.features)) for name, model in models.items()}
    assert logs[BLEND] == pytest.approx(np.mean([logs[name] for name in parts], axis=0), abs=1e-6)


def test_predictions_are_positive_however_far() -> None:
    data = sampled(random_products(30, seed=0), noise=0.1)
    far = random_products(100, seed=3, low=1, high=10**6)
    terms, features = data.schema.matrices([price(call, "forward", CLUSTER) for call in far])
    for candidate in CANDIDATES:
        model = fit_candidate(candidate, data.terms, data.features, data.time_us)
        within = learn_domain(data.terms, data.features, model.base.time_us(data.terms))
        assert (model.time_us(terms, features, within) > 0).all()


def test_fits_are_deterministic() -> None:
    data = sampled(random_products(30, seed=0), noise=0.1)
    first, second = (fit_operator(data)[0].model.time_us(data.terms, data.features) for _ in range(2))
    assert first.tobytes() == second.tobytes()
