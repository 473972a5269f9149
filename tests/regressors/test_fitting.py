"""The choice among kinds of model: made on held-out rows, and scored on others."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from regressors.accuracy.score import cross_validate, rivals
from regressors.dataset.splits import at_random, by_shape, largest
from regressors.dataset.training_data import TrainingData, training_data
from regressors.features.arrays import Floats
from regressors.features.pricing import price
from regressors.fitting import fit
from regressors.fitting.fit import (
    ALONE,
    FOREST_ALONE,
    SHAPES_FOR_TREES,
    XGBOOST_ALONE,
    HeldOut,
    choose,
    compare,
    competing,
    fit_operator,
    held_out_errors,
)
from regressors.fitting.settings_search import SettingsSearch
from regressors.models.candidates import BLEND, CANDIDATES, FOREST, ROOFLINE, TREES, XGBOOST
from regressors.uncertainty.sampled_times import noise_between_samplings, tabulate
from sampling.call import Call
from sampling.errors import SamplesError
from tests.regressors.synthetic_operators import CLUSTER, Product, random_products, roofline_time, sample, sampled


def test_intervals_cover_nine_of_ten_fresh_times() -> None:
    hits = []
    for seed in range(4):
        fitted, _ = fit_operator(sampled(random_products(60, seed=seed), noise=0.05, seed=seed))
        calls = random_products(300, seed=100 + seed)
        times = fitted.predict([price(call, "forward", CLUSTER) for call in calls])
        truth = sampled(calls, noise=0.05, seed=200 + seed).time_us
        hits += [t.low_us <= y <= t.high_us for t, y in zip(times, truth, strict=True) if t.source == "measured"]
    assert len(hits) > 800
    assert 0.85 <= np.mean(hits) <= 0.95


@pytest.mark.parametrize("count", [1, 3, 5, 6])
def test_few_rows_give_a_finite_model(count: int) -> None:
    calls = random_products(count, seed=0)
    fitted, _ = fit_operator(sampled(calls))
    far = Product(m=10_000, n=10_000, k=10_000)
    for times in fitted.predict([price(call, "forward", CLUSTER) for call in (*calls, far)]):
        assert 0 < times.low_us <= times.median_us <= times.high_us < np.inf
    assert fitted.predict([price(far, "forward", CLUSTER)])[0].source == "extrapolated"
    assert len(fitted.sampled_times.shape) == count
    assert fitted.model.candidate == "roofline" or count >= 6


def test_one_shape_scales_with_its_work() -> None:
    fitted, _ = fit_operator(sampled([Product(m=512, n=512, k=512)]))
    small, large = (
        fitted.predict([price(Product(m=m, n=512, k=512), "forward", CLUSTER)])[0].median_us for m in (512, 512 * 64)
    )
    assert small == pytest.approx(roofline_time(Product(m=512, n=512, k=512)), rel=1e-3)
    assert 20 < large / small < 64


def test_repeats_of_one_shape_are_one_shape() -> None:
    data = sampled([Product(m=512, n=512, k=512)] * 10, noise=0.02)
    fitted, held_out = fit_operator(data)
    assert len(fitted.sampled_times.shape) == 1
    assert [*cross_validate(data, fitted.model.candidate, held_out, SettingsSearch(data))] == ["random"]


def test_impossible_times_are_refused() -> None:
    with pytest.raises(SamplesError, match="quarantine"):
        training_data([(sample(Product(m=1, n=1, k=1), 0.0), CLUSTER)])


def test_splits_keep_shapes_together_and_hold_out_the_largest() -> None:
    data = sampled(random_products(20, seed=0) * 3)
    held = np.zeros(len(data), dtype=int)
    for fold in by_shape(data.shape):
        assert not set(data.shape[fold]) & set(data.shape[~fold])
        held += fold
    assert (held == 1).all()
    top = largest(data.shape, data.terms)
    assert top.sum() == 12
    assert data.terms[top].sum(axis=1).min() >= data.terms[~top].sum(axis=1).max()
    assert [mask.sum() for mask in at_random(60)] == [12, 12, 12]


def test_a_sample_outweighs_the_model_unless_it_is_noisy() -> None:
    call = Product(m=512, n=512, k=512)
    model_error = np.array([0.5])  # the model says e^0.5 times the sample

    def answer(spread: float) -> float:
        data = training_data([(sample(call, 100.0, spread=spread, repeats=4), CLUSTER)])[0]
        return float(np.log(tabulate(data, model_error, model_half_width=0.2).median_us[0] / 100))

    assert answer(0.001) == pytest.approx(0.0, abs=0.001)
    assert answer(0.001) < answer(0.1) < answer(1.0) < 0.5
    assert answer(1.0) > 0.4


def test_the_interval_of_a_sample_spans_its_own_spread() -> None:
    data = training_data([(sample(Product(m=512, n=512, k=512), 100.0, spread=0.1), CLUSTER)])[0]
    table = tabulate(data, np.array([np.nan]), model_half_width=1.0)
    assert table.median_us[0] == pytest.approx(100)
    assert table.low_us[0] < 100 * np.exp(-0.1)
    assert table.high_us[0] > 100 * np.exp(0.1)


def test_noise_between_samplings_is_that_of_repeated_shapes() -> None:
    repeated = sampled(random_products(40, seed=0) * 5, noise=0.04, seed=1)
    assert noise_between_samplings(repeated) == pytest.approx(0.04, rel=0.15)


def test_a_row_timed_once_is_trusted_as_far_as_the_model() -> None:
    """An imported row says nothing of its noise: it does not answer with an interval of no width."""
    rows = [
        (sample(call, roofline_time(call) * factor, spread=0.0, repeats=1), CLUSTER)
        for call, factor in zip(
            random_products(60, seed=0), np.random.default_rng(0).lognormal(0, 0.05, 60), strict=True
        )
    ]
    table = fit_operator(training_data(rows)[0])[0].sampled_times
    assert (np.log(table.high_us / table.median_us) > 0.03).all()


def held_out(within: float, beyond: float, rows: int = 4) -> HeldOut:
    return HeldOut(unseen=np.full(rows, within), beyond=np.full(rows, beyond))


EVERY = np.ones(4, dtype=np.bool_)


@pytest.mark.parametrize(
    ("forest", "chosen"),
    [
        ((0.05, 0.1), FOREST),
        # better beyond the samples only, where the roofline answers for it
        ((0.12, 0.01), BLEND),
        # better within them, and what it gains is lost beyond
        ((0.05, 0.2), BLEND),
    ],
)
def test_trees_win_where_they_err_less_within_the_samples_and_in_all(forest: tuple[float, float], chosen: str) -> None:
    errors = {ROOFLINE: held_out(0.3, 0.1), BLEND: held_out(0.1, 0.1), FOREST: held_out(*forest)}
    assert choose(errors, EVERY) == chosen


def test_trees_alone_are_never_chosen() -> None:
    assert choose({ROOFLINE: held_out(0.3, 0.3), FOREST_ALONE: held_out(0.0, 0.0)}, EVERY) == ROOFLINE


def test_trees_compete_from_twenty_shapes_on_unless_they_are_asked_for() -> None:
    few, enough = (sampled(random_products(count, seed=0)) for count in (SHAPES_FOR_TREES - 1, SHAPES_FOR_TREES))
    assert not set(competing(few)) & set(TREES)
    assert set(competing(enough)) == set(CANDIDATES)
    assert competing(few, (XGBOOST,)) == (XGBOOST,)
    assert competing(sampled(random_products(5, seed=0)), (XGBOOST,)) == (ROOFLINE,)


def steps(call: Call) -> float:
    """A time that no resource explains: three kernels, each of one speed whatever the size."""
    return float([10.0, 100.0, 1000.0][int(np.searchsorted([300, 900], call.fields()["m"]))])


def staircase() -> TrainingData:
    grid = [Product(m=int(m), n=n, k=64) for m in np.geomspace(64, 4096, 20) for n in (64, 128, 256)]
    return sampled(grid, truth=steps, noise=0.01)


def test_trees_are_chosen_where_they_are_right() -> None:
    fitted, errors = fit_operator(staircase())
    assert fitted.model.candidate in TREES
    assert set(errors) == set(CANDIDATES)


def test_trees_that_lose_the_first_fold_by_far_are_not_fitted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regressors.models.candidates.SMOOTH_ROWS", 0)
    data = sampled(random_products(200, seed=0), noise=0.02)
    fitted = Counter[str]()

    def counted(kinds: Sequence[str], *arguments: Any) -> dict[str, Floats]:
        fitted.update(kinds)
        return held_out_errors(kinds, *arguments)

    monkeypatch.setattr(fit, "held_out_errors", counted)
    raced = compare(data, CANDIDATES)
    assert [*raced] == [ROOFLINE, BLEND]
    assert fitted == {ROOFLINE: 6, BLEND: 6, FOREST: 1, XGBOOST: 1}
    alone = compare(data, [*CANDIDATES, FOREST_ALONE])
    assert not np.isnan(alone[FOREST].unseen).any(), "compared all the same"
    every = np.ones(len(data), dtype=np.bool_)
    assert choose(raced, every) == choose(alone, every)


def test_many_rows_of_a_shape_are_no_more_evidence_against_trees_than_one() -> None:
    draw = np.random.default_rng(0)
    for mean, shapes, beaten in ((0.5, 40, True), (0.2, 40, False), (0.5, 20, False)):
        more = draw.normal(size=shapes)
        more += mean - more.mean()
        shape = np.arange(shapes, dtype=np.uint64)
        for times in (1, 25):
            errors = np.repeat(9 + more, times)
            assert fit._beaten(np.repeat(shape, times), errors, np.full(len(errors), 9.0)) is beaten


def test_a_fold_is_scored_with_the_choice_of_the_others() -> None:
    """In each fold another kind happens to be right; a choice that saw the fold would score nothing but zeros."""
    data = sampled(random_products(40, seed=0))
    folds, top = by_shape(data.shape), largest(data.shape, data.terms)
    errors = {}
    for place, name in enumerate((ROOFLINE, BLEND)):
        unseen: Floats = np.full(len(data), 0.5)
        for fold in folds[place::2]:
            unseen[fold] = 0.0
        errors[name] = HeldOut(unseen=unseen, beyond=np.where(top, unseen, np.nan))
    scores = cross_validate(data, choose(errors, np.ones(len(data), dtype=np.bool_)), errors, SettingsSearch(data))
    best = min(float(np.abs(np.expm1(of.unseen)).mean()) for of in errors.values())
    assert scores["shape"].mape > 100 * best


def test_the_report_names_the_rivals_that_are_not_candidates() -> None:
    data = sampled(random_products(30, seed=0), truth=roofline_time, noise=0.02)
    assert [*rivals(data)] == [*ALONE] == [FOREST_ALONE, XGBOOST_ALONE]
    fitted, errors = fit_operator(data, (ROOFLINE,), beside=rivals(data))
    scores = cross_validate(data, fitted.model.candidate, errors, SettingsSearch(data))
    for score in scores.values():
        assert score.candidate == ROOFLINE
        assert score.mape < min(score.raw_forest, score.raw_xgboost)
