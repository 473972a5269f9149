import numpy as np
import pytest

from regressors.dataset.training_data import TrainingData
from regressors.features.pricing import price
from regressors.fitting.fit import fit_operator
from regressors.fitting.selection import choose, compare
from regressors.models.candidates import (
    BLENDED,
    CANDIDATES,
    RAW_TIME,
    ROOFLINE,
    SMOOTH_ROWS,
    fit_candidate,
    fit_candidates,
)
from sampling.call import Call
from tests.regressors.synthetic_operators import CLUSTER, Product, random_products, roofline_time, sampled

HYBRIDS = [*BLENDED, "hybrid-blend"]


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


@pytest.mark.parametrize("candidate", ["forest", "xgboost"])
def test_trees_on_raw_time_saturate(candidate: str) -> None:
    data = sampled(random_products(60, seed=0, high=1024), noise=0.02)
    larger = [Product(m=8 * call.m, n=call.n, k=call.k) for call in random_products(50, seed=2, low=600, high=1024)]
    assert mape(candidate, data, larger) > 0.5


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
    clean = compare(sampled(random_products(40, seed=0), noise=0.02))
    assert clean[choose(clean)].score < 1.05 * clean[ROOFLINE].score


@pytest.mark.parametrize("rows", [50, SMOOTH_ROWS])
def test_the_blend_is_the_mean_of_its_parts(rows: int) -> None:
    data = sampled(random_products(rows, seed=0, high=1024), truth=narrow_is_slow, noise=0.05)
    parts = HYBRIDS[:-1] if rows < SMOOTH_ROWS else HYBRIDS[1:-1]
    models = fit_candidates(HYBRIDS, data.terms, data.features, data.time_us)
    logs = {name: np.log(model.time_us(data.terms, data.features)) for name, model in models.items()}
    assert logs["hybrid-blend"] == pytest.approx(np.mean([logs[name] for name in parts], axis=0), abs=1e-6)


def test_predictions_are_positive_however_far() -> None:
    data = sampled(random_products(30, seed=0), noise=0.1)
    far = random_products(100, seed=3, low=1, high=10**6)
    terms, features = data.schema.matrices([price(call, "forward", CLUSTER) for call in far])
    for candidate in (*CANDIDATES, *RAW_TIME):
        assert (fit_candidate(candidate, data.terms, data.features, data.time_us).time_us(terms, features) > 0).all()


def test_fits_are_deterministic() -> None:
    data = sampled(random_products(30, seed=0), noise=0.1)
    first, second = (fit_operator(data)[0].model.time_us(data.terms, data.features) for _ in range(2))
    assert first.tobytes() == second.tobytes()
