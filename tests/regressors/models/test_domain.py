import numpy as np
import pytest

from regressors.models.domain import learn_domain
from tests.regressors.synthetic_operators import random_products, sampled


def test_domain_of_samples() -> None:
    data = sampled(random_products(60, seed=0))
    base = data.terms.sum(axis=1)
    domain = learn_domain(data.terms, data.features, base)
    assert domain.contains(data.terms, data.features).all()
    assert (domain.octaves_beyond(base) == 0).all()
    fresh = sampled(random_products(300, seed=1, low=100, high=3000))
    assert domain.contains(fresh.terms, fresh.features).mean() > 0.9
    large = sampled(random_products(50, seed=1, low=8192, high=16384))
    assert not domain.contains(large.terms, large.features).any()
    assert domain.octaves_beyond(base.max(keepdims=True) * 8) == pytest.approx([3.0])
    assert domain.octaves_beyond(base.min(keepdims=True) / 4) == pytest.approx([2.0])


def test_a_hole_among_the_samples_is_outside() -> None:
    x = np.array([0.0, 0.1, 0.2, 0.3, 10.0, 10.1, 10.2, 10.3])
    domain = learn_domain(np.exp2(x)[:, None], x[:, None], np.exp2(x))
    asked = np.array([0.15, 5.0, 10.25])
    assert domain.contains(np.exp2(asked)[:, None], asked[:, None]).tolist() == [True, False, True]


def test_a_feature_that_never_varied_must_stay() -> None:
    features = np.column_stack([np.linspace(0, 1, 10), np.full(10, 3.0)])
    domain = learn_domain(np.ones((10, 1)), features, np.ones(10))
    asked = np.array([[0.5, 3.0], [0.5, 3.4], [0.5, 4.0]])
    assert domain.contains(np.ones((3, 1)), asked).tolist() == [True, True, False]
