import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regressors.dataset.training_data import TrainingData
from regressors.features.pricing import price
from regressors.fitting.fit import choose, compare, fit_operator
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
from regressors.models.smooth import MAX_CENTRES, fit_smooth, spread_subset
from regressors.models.time_model import fit_roofline
from sampling.call import Call
from tests.regressors.few_trees import few_trees
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


@pytest.mark.parametrize(("most", "parts"), [(SMOOTH_ROWS, HYBRIDS[:-1]), (50, HYBRIDS[1:-1])])
def test_the_blend_is_the_mean_of_its_parts_without_the_smooth_one_from_many_rows_on(
    most: int, parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regressors.models.candidates.SMOOTH_ROWS", most)
    data = sampled(random_products(50, seed=0, high=1024), truth=narrow_is_slow, noise=0.05)
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
    with few_trees():
        first, second = (fit_operator(data)[0].model.time_us(data.terms, data.features) for _ in range(2))
    assert first.tobytes() == second.tobytes()


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


def test_recovers_the_coefficients_of_a_clean_roofline() -> None:
    data = sampled(random_products(30, seed=0))
    fit = fit_roofline(data.terms, data.time_us)
    assert fit.slowdown == pytest.approx([1.5, 2.5], rel=0.02)
    assert fit.overhead_us == pytest.approx(3.0, rel=0.02)


def test_a_few_bad_rows_do_not_bend_it() -> None:
    data = sampled(random_products(40, seed=0), noise=0.01)
    bad = data.time_us.copy()
    bad[:3] *= 20
    clean, bent = fit_roofline(data.terms, data.time_us), fit_roofline(data.terms, bad)
    assert bent.time_us(data.terms) == pytest.approx(clean.time_us(data.terms), rel=0.05)


def test_noise_alone_leaves_no_bias() -> None:
    data = sampled(random_products(400, seed=1), noise=0.3, seed=2)
    fit = fit_roofline(data.terms, data.time_us)
    truth = np.array([roofline_time(call) for call in random_products(400, seed=1)])
    assert np.mean(np.log(fit.time_us(data.terms) / truth)) == pytest.approx(0.0, abs=0.04)


def test_one_row_gives_every_resource_the_same_slowdown() -> None:
    fit = fit_roofline(np.array([[10.0, 30.0]]), np.array([100.0]))
    assert fit.slowdown == pytest.approx([2.5, 2.5])
    assert fit.overhead_us == pytest.approx(0.0)


def test_terms_that_grow_together_share_the_slowdown() -> None:
    work = np.array([1.0, 10.0, 100.0])
    fit = fit_roofline(np.column_stack([work, 3 * work]), 8 * work)
    assert fit.slowdown == pytest.approx([2.0, 2.0], rel=1e-3)


def test_calls_without_work_cost_the_overhead() -> None:
    fit = fit_roofline(np.zeros((3, 2)), np.array([7.0, 7.0, 7.0]))
    assert fit.time_us(np.zeros((1, 2))) == pytest.approx([7.0])


@settings(max_examples=30)
@given(st.lists(st.tuples(*[st.floats(1, 1e6)] * 3), min_size=1, max_size=8), st.floats(1, 1e3))
def test_never_negative_and_scales_with_the_unit_of_time(rows: list[tuple[float, float, float]], unit: float) -> None:
    table = np.array(rows)
    fit = fit_roofline(table[:, :2], table[:, 2])
    assert (fit.slowdown >= 0).all()
    assert fit.overhead_us >= 0
    assert (fit.time_us(table[:, :2]) > 0).all()
    # a clock that counts in another unit finds the same slowdown times the unit, but for the least time a clock resolves
    other = fit_roofline(table[:, :2], table[:, 2] * unit)
    assert other.time_us(table[:, :2]) == pytest.approx(unit * fit.time_us(table[:, :2]), rel=5e-3, abs=2e-3)


def test_learns_a_smooth_curve_from_few_rows() -> None:
    x = np.linspace(0, 6, 25)[:, None]
    fresh = np.linspace(0.5, 5.5, 40)[:, None]
    assert fit_smooth(x, np.sin(x[:, 0])).predict(fresh) == pytest.approx(np.sin(fresh[:, 0]), abs=0.02)


def test_holds_its_edge_value_far_outside() -> None:
    x = np.linspace(0, 1, 20)[:, None]
    fit = fit_smooth(x, x[:, 0])
    assert fit.predict(np.array([[1e6]])) == pytest.approx(fit.predict(np.array([[1.0]])))
    assert fit.predict(np.array([[1e6]]))[0] == pytest.approx(1.0, abs=0.05)


def test_never_leaves_the_range_of_the_targets() -> None:
    generator = np.random.default_rng(0)
    target = generator.normal(size=30)
    predicted = fit_smooth(generator.normal(size=(30, 3)), target).predict(10 * generator.normal(size=(500, 3)))
    assert target.min() <= predicted.min()
    assert predicted.max() <= target.max()


def test_pure_noise_is_smoothed_away() -> None:
    generator = np.random.default_rng(0)
    rows, target = generator.normal(size=(80, 4)), generator.normal(size=80)
    assert np.std(fit_smooth(rows, target).predict(generator.normal(size=(200, 4)))) < 0.6


def test_constant_inputs_and_a_single_row() -> None:
    assert fit_smooth(np.ones((4, 2)), np.arange(4.0)).predict(np.ones((1, 2))) == pytest.approx([1.5], abs=1e-6)
    assert fit_smooth(np.ones((1, 2)), np.array([0.3])).predict(np.zeros((1, 2))) == pytest.approx([0.3])


def test_a_subset_covers_the_rows_and_repeats_none() -> None:
    rows = np.random.default_rng(0).uniform(size=(1000, 2))
    chosen = spread_subset(rows, MAX_CENTRES)
    assert len(set(chosen.tolist())) == MAX_CENTRES
    gaps = np.linalg.norm(rows[:, None] - rows[chosen][None], axis=2).min(axis=1)
    # a square of 200 discs: a radius of √(2/200) covers it with room to spare
    assert gaps.max() < 0.1
