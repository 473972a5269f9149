"""Which shapes are timed next: spread out, where a committee disagrees, and better than by chance."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from regressors.accuracy.score import subset
from regressors.active.choice import Timed, Untimed, ask_committee, batch_rows, fill_space, most_to_learn, next_rows
from regressors.dataset.training_data import TrainingData
from regressors.features.arrays import Floats
from regressors.models.candidates import BLEND, fit_candidate
from sampling.call import Call
from tests.regressors.synthetic_operators import Product, random_products, roofline_time, sampled


def cliff(call: Call) -> float:
    """A kernel that takes one and a half times as long, and unevenly so, for narrow outputs."""
    assert isinstance(call, Product)
    narrow = call.n < 256
    ripple = 0.25 * math.sin(3 * math.log2(call.m)) if narrow else 0.0
    return roofline_time(call) * (1.5 if narrow else 1.0) * math.exp(ripple)


def timed(data: TrainingData) -> Timed:
    return Timed(terms=data.terms, features=data.features, time_us=data.time_us)


def untimed(data: TrainingData) -> Untimed:
    return Untimed(terms=data.terms, features=data.features, cost_s=np.ones(len(data)))


def part(
    data: TrainingData, places: Floats | list[int] | range | np.ndarray[tuple[int, ...], np.dtype[np.intp]]
) -> TrainingData:
    mask = np.zeros(len(data), dtype=np.bool_)
    mask[np.asarray(places, dtype=np.intp)] = True
    return subset(data, mask)


def test_batches_fill_the_space_then_grow_by_a_quarter() -> None:
    assert batch_rows(0) == 64
    assert batch_rows(50) == 14
    assert batch_rows(400) == 100


def test_filling_the_space_takes_one_of_each_cluster_before_two_of_any() -> None:
    centres = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])
    rows = (centres[:, None, :] + np.random.default_rng(0).normal(0, 0.1, (4, 10, 2))).reshape(-1, 2)
    assert sorted(fill_space(rows, 4) // 10) == [0, 1, 2, 3]
    assert len(fill_space(rows[:3], 10)) == 3


def test_no_two_of_a_batch_lie_next_to_each_other() -> None:
    rows = np.linspace(0, 1, 101)[:, None]
    chosen = np.sort(rows[most_to_learn(rows[:1], rows, np.ones(101), 9), 0])
    assert np.diff(chosen).min() > 0.05
    assert len(set(chosen)) == 9


def test_a_batch_never_repeats_a_shape_even_where_nothing_is_left_to_learn() -> None:
    rows = np.zeros((5, 2))
    assert sorted(most_to_learn(rows[:1], rows, np.ones(5), 9)) == [0, 1, 2, 3, 4]


def test_shapes_worth_more_are_chosen_more_often() -> None:
    rows = np.linspace(0, 1, 200)[:, None]
    value = np.where(rows[:, 0] < 0.5, 10.0, 1.0)
    chosen = rows[most_to_learn(rows[[0, -1]], rows, value, 20), 0]
    assert (chosen < 0.5).sum() > 12


def test_the_committee_disagrees_at_the_cliff_and_the_batch_goes_there() -> None:
    data = sampled(random_products(500, seed=1), truth=cliff)
    known, rest = part(data, range(100)), part(data, range(100, 500))
    narrow = 2 ** rest.features[:, list(rest.schema.features).index("n")] < 256
    disagreement = ask_committee(timed(known), untimed(rest)).disagreement[100:]
    assert disagreement[narrow].mean() > 1.5 * disagreement[~narrow].mean()
    chosen = next_rows(timed(known), untimed(rest), 40).places
    assert narrow[chosen].mean() > narrow.mean()


def test_the_same_rows_give_the_same_choice() -> None:
    data = sampled(random_products(200, seed=2), truth=cliff)
    known, rest = timed(part(data, range(60))), untimed(part(data, range(60, 200)))
    assert next_rows(known, rest, 20).places.tolist() == next_rows(known, rest, 20).places.tolist()


def test_what_costs_more_is_chosen_less() -> None:
    data = sampled(random_products(400, seed=3), truth=cliff)
    known, rest = timed(part(data, range(60))), untimed(part(data, range(60, 400)))
    dear = np.arange(340) % 2 == 0
    chosen = next_rows(known, replace(rest, cost_s=np.where(dear, 25.0, 1.0)), 60).places
    assert dear[chosen].mean() < 0.4


def test_where_a_named_run_would_extrapolate_comes_first() -> None:
    known = timed(sampled(random_products(80, seed=4, high=512)))
    rest = untimed(sampled(random_products(200, seed=5, high=8192)))
    far = untimed(sampled([Product(m=8000, n=8000, k=8000)]))
    first = next_rows(known, rest, 10, far).places[0]
    nearest = ((rest.features - far.features) ** 2).sum(axis=1).argmin()
    assert first == nearest
    inside = untimed(sampled([Product(m=200, n=200, k=200)]))
    assert next_rows(known, rest, 10, inside).places.tolist() == next_rows(known, rest, 10).places.tolist()


def test_too_few_rows_for_a_committee_are_filled_up_evenly() -> None:
    rest = untimed(sampled(random_products(50, seed=6)))
    known = timed(sampled(random_products(3, seed=7)))
    assert next_rows(known, rest, 8).places.tolist() == fill_space(rest.features, 8).tolist()


def test_chosen_rows_beat_random_ones_on_a_kernel_with_a_cliff() -> None:
    data = sampled(random_products(1200, seed=8), truth=cliff, noise=0.005)
    pool, test = part(data, range(800)), part(data, range(800, 1200))

    def error(places: np.ndarray[tuple[int, ...], np.dtype[np.intp]]) -> float:
        rows = part(pool, places)
        model = fit_candidate(BLEND, rows.terms, rows.features, rows.time_us)
        return float(np.abs(model.time_us(test.terms, test.features) / test.time_us - 1).mean())

    chosen = fill_space(pool.features, 64)
    while len(chosen) < 150:
        left = np.setdiff1d(np.arange(800), chosen)
        batch = next_rows(
            timed(subset_in_order(pool, chosen)), untimed(subset_in_order(pool, left)), batch_rows(len(chosen))
        )
        chosen = np.concatenate([chosen, left[batch.places]])
    by_chance = [error(np.random.default_rng(seed).permutation(800)[: len(chosen)]) for seed in range(3)]
    assert error(chosen) < 0.95 * float(np.mean(by_chance))


def subset_in_order(data: TrainingData, places: np.ndarray[tuple[int, ...], np.dtype[np.intp]]) -> TrainingData:
    return replace(data, terms=data.terms[places], features=data.features[places], time_us=data.time_us[places])
