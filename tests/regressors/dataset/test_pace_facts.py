"""The spread of a machine's pace over time, and the rows that are left out for theirs."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from regressors.dataset.pace_facts import pace_facts, pace_half_width, unexplained
from regressors.dataset.training_data import steady, training_data
from regressors.features.digests import shape_digest
from regressors.uncertainty.sampled_times import SampledTimes, tabulate
from sampling.hardware.cluster import Cluster
from sampling.store.pace import Resource
from sampling.store.pace_log import PaceLog
from sampling.store.sample import Sample
from tests.sampling.store.test_pace import CLUSTER, ROW, reading

MIX: dict[Resource, float] = {"compute": 1.0, "memory": 0.0, "wire": 0.0}


def log_of(log_paces: np.ndarray, every_s: float = 10.0) -> PaceLog:
    return PaceLog(reading(every_s * place, 100.0 * math.exp(-value)) for place, value in enumerate(log_paces))


def wander(memory_s: float, deviation: float, moments: int, seed: int) -> np.ndarray:
    """An Ornstein-Uhlenbeck path, a value each ten seconds."""
    random, kept = np.random.default_rng(seed), math.exp(-10 / memory_s)
    path = [random.normal(0, deviation)]
    while len(path) < moments:
        path.append(kept * path[-1] + random.normal(0, deviation * math.sqrt(1 - kept**2)))
    return np.array(path)


def test_nine_in_ten_later_moments_lie_within_the_spread_of_a_session_that_is_long_beside_the_memory() -> None:
    covered, reaches = [], []
    for seed in range(10):
        path = wander(60, 0.05, 400, seed)
        reach = pace_half_width(log_of(path[:60]), 2, MIX)
        reaches.append(reach)
        later = path[100:] - np.median(path[:60])
        covered.append(float(np.mean(np.abs(later) <= reach)))
    assert np.mean(covered) > 0.85
    assert np.median(reaches) < 2 * 1.645 * 0.05


def test_a_pace_that_moved_slowly_through_a_short_session_may_go_farther() -> None:
    found = np.random.default_rng(0).normal(0.0, 0.05, 20)
    slow = np.sort(found)
    assert pace_half_width(log_of(slow), 2, MIX) > 1.5 * pace_half_width(log_of(found), 2, MIX)


def test_a_steady_pace_has_hardly_a_spread_and_two_moments_show_none() -> None:
    assert pace_half_width(log_of(np.zeros(50)), 2, MIX) < 0.01
    assert pace_half_width(log_of(np.zeros(2)), 2, MIX) == 0.0
    assert pace_facts(PaceLog([]), [(ROW, CLUSTER)]) == {}


def test_rows_far_from_the_reference_pace_are_left_out_where_a_shape_has_better_ones() -> None:
    paces = [1.0, 1.01, 0.98, 0.97, 0.7]
    rows = [(replace(ROW, pace=pace), CLUSTER) for pace in paces]
    assert [row.pace for row, _ in steady(rows)] == paces[:4]
    assert [row.pace for row, _ in steady(rows[2:])] == paces[2:]


def test_models_learn_the_time_at_the_reference_pace_with_the_disturbance_of_a_step() -> None:
    (data,) = training_data([(replace(ROW, pace=0.5), CLUSTER)], disturbance=lambda sample, cluster: 1.1)
    assert data.time_us.tolist() == pytest.approx([0.5 * 1.1 * ROW.time_us])


def times_of(*rows: Sample) -> SampledTimes:
    (data,) = training_data([(row, CLUSTER) for row in rows])
    return tabulate(data, np.full(len(data), np.nan), 0.1)


def width_of(times: SampledTimes, row: Sample) -> float:
    place = times.shape.tolist().index(shape_digest(row.call, row.phase, row.threads))
    return float(np.log(times.high_us[place] / times.low_us[place]) / 2)


def test_the_interval_of_a_sampled_call_is_that_of_its_held_out_moments() -> None:
    noise = np.random.default_rng(0).normal(0.0, 0.03, 40)
    moments = [replace(ROW, time_us=100 * math.exp(each), low_us=50.0, high_us=200.0) for each in noise]
    assert width_of(times_of(*moments), ROW) == pytest.approx(1.645 * 0.03, rel=0.25)


def test_a_call_that_contradicts_another_has_a_wider_interval() -> None:
    more = replace(ROW, call=replace(ROW.call, m=1024))
    agreeing = times_of(
        ROW, ROW, replace(more, time_us=125.0, high_us=130.0), replace(more, time_us=125.0, high_us=130.0)
    )
    contradicting = times_of(ROW, ROW, *[replace(more, time_us=90.0, low_us=85.0)] * 2)
    assert width_of(agreeing, ROW) == 0.0
    assert width_of(contradicting, ROW) == pytest.approx(math.log(120 / 90) - 0.1)
    assert width_of(contradicting, more) == pytest.approx(math.log(120 / 90) - 0.1)


# What rows of one moment are off by together, which the readings of the pace leave unexplained.

CALLS = [replace(ROW.call, m=2**size) for size in range(5, 11)]


def moments(together: float, alone: float, *, log_paces: float = 0.0) -> list[tuple[Sample, Cluster]]:
    """Six calls at each of 60 moments, a minute apart: off together and each alone by these standard deviations in log; the pace itself
    has that of `log_paces`, and what is together grows with it."""
    random = np.random.default_rng(0)
    rows = []
    for moment in range(60):
        log_pace = random.normal(0.0, log_paces) if log_paces else 0.0
        shared = random.normal(0.0, together) * (log_pace if log_paces else 1.0)
        for place, call in enumerate(CALLS):
            time_us = 100 * (place + 1) * math.exp(shared + random.normal(0.0, alone) - log_pace)
            rows.append(
                (replace(ROW, call=call, at_s=60.0 * moment + place, time_us=time_us, pace=math.exp(log_pace)), CLUSTER)
            )
    return rows


def test_what_calls_of_a_moment_share_is_found_beside_the_noise_of_each() -> None:
    found = unexplained(moments(together=0.03, alone=0.05))
    assert found.at_reference == pytest.approx(0.03, rel=0.4)
    assert found.half_width(0.0) == pytest.approx(1.645 * found.at_reference)


def test_noise_of_each_call_alone_is_none_of_the_moment() -> None:
    assert unexplained(moments(together=0.0, alone=0.05)).at_reference < 0.015


def test_what_grows_with_the_distance_of_the_pace_widens_work_at_that_pace_alone() -> None:
    found = unexplained(moments(together=0.5, alone=0.01, log_paces=0.2))
    assert found.by_log_pace == pytest.approx(0.5, rel=0.4)
    assert found.half_width(0.2) > 5 * found.half_width(0.0)


def test_rows_of_one_moment_show_nothing() -> None:
    assert unexplained([(ROW, CLUSTER)]).half_width(0.3) == 0.0


def test_the_pairs_of_many_rows_of_one_moment_take_little_memory() -> None:
    rows = [(replace(ROW, call=call, at_s=0.0), CLUSTER) for _ in range(700) for call in CALLS]
    tracemalloc.start()
    assert unexplained(rows).half_width(0.3) < 1e-6
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 50e6
