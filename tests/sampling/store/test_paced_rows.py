"""How far rows follow the readings of the pace, of machines whose calls do and do not."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sampling.hardware.cluster import Cluster
from sampling.store.pace import Response
from sampling.store.pace_log import PaceLog, PaceReading
from sampling.store.paced_rows import at_their_pace, followed_log, responses
from sampling.store.sample import Sample
from tests.sampling.store.test_pace import CLUSTER, ROW, reading, slowing


def session(follows: float) -> tuple[list[PaceReading], list[tuple[Sample, Cluster]]]:
    """Readings whose pace changes by 30 % every 20 s, and rows of ten calls beside them, slowed by the power `follows` of it."""
    random = np.random.default_rng(0)
    readings, rows = [], []
    for second in range(400):
        slow = 1.3 if second // 20 % 2 else 1.0
        readings.append(reading(float(second), 100 * slow * math.exp(random.normal(0, 0.01))))
        call = replace(ROW.call, m=512 + 64 * (second % 10))
        time_us = 10 * call.m * slow**follows * math.exp(random.normal(0, 0.02))
        rows.append((replace(ROW, call=call, at_s=second + 0.5, time_us=time_us), CLUSTER))
    return readings, rows


@pytest.mark.parametrize("follows", [0.0, 0.5, 1.0])
def test_the_response_is_what_rows_of_one_call_show(follows: float) -> None:
    readings, rows = session(follows)
    found = responses(PaceLog(readings), rows)
    assert found[2, "compute"].within == pytest.approx(follows, abs=0.12)


@pytest.mark.parametrize("follows", [0.0, 0.5, 1.0])
def test_rows_at_their_pace_scatter_by_their_own_noise_whether_or_not_they_follow_the_readings(follows: float) -> None:
    readings, rows = session(follows)
    paced = at_their_pace(followed_log(readings, rows), rows)
    of_one = np.log([row.time_us * row.pace for row in paced if row.call == paced[0].call])
    assert of_one.std() < 0.04


def test_a_change_beyond_those_that_rows_saw_counts_in_full() -> None:
    response = Response(within=0.2, reach=0.1)
    assert response(math.exp(-0.1)) == pytest.approx(math.exp(-0.02))
    assert response(math.exp(-0.3)) == pytest.approx(math.exp(-0.22))
    assert response(math.exp(0.3)) == pytest.approx(math.exp(0.22))
    assert Response()(0.7) == pytest.approx(0.7)


def test_a_response_is_known_the_better_the_more_rows_saw_a_change_and_less_beyond_those_changes() -> None:
    readings, rows = session(0.5)
    many, few = (responses(PaceLog(readings), of)[2, "compute"] for of in (rows, rows[:40]))
    assert 0 < many.deviation < few.deviation < 0.5
    assert many.deviation_at(1.0) == 0.0
    assert many.deviation_at(math.exp(-many.reach)) == pytest.approx(many.deviation * many.reach)
    beyond = many.deviation_at(math.exp(-many.reach - 0.1)) - many.deviation_at(math.exp(-many.reach))
    assert beyond == pytest.approx(0.1 * (1 - many.within), rel=0.3)


def test_without_a_call_timed_twice_readings_that_are_mostly_noise_count_less() -> None:
    random = np.random.default_rng(0)
    times = (100 * math.exp(random.normal(0, 0.2)) for _ in slowing())
    noisy = [replace(each, time_us=time_us, slowest_us=time_us) for each, time_us in zip(slowing(), times, strict=True)]
    assert responses(PaceLog(noisy), [(ROW, CLUSTER)])[2, "compute"].within < 0.4
    levels = [PaceLog(noisy).beside(2)["compute"].pace_at(float(second), 0) for second in range(100)]
    assert max(levels) < 1.2 * min(levels)  # of single readings, 2.4 times
    assert responses(PaceLog(slowing()), [(ROW, CLUSTER)])[2, "compute"].within > 0.95


def test_rows_of_a_call_with_other_threads_are_of_another_call() -> None:
    readings, rows = session(1.0)
    slower = [(replace(row, threads=2, time_us=2 * row.time_us), cluster) for row, cluster in rows]
    one, both = (responses(PaceLog(readings), each)[2, "compute"].within for each in (rows, rows + slower))
    assert both == pytest.approx(one, abs=0.01)


def test_rows_beside_which_nothing_was_read_have_no_response() -> None:
    assert responses(PaceLog([]), [(ROW, CLUSTER)]) == {}
    assert responses(PaceLog(slowing()), [(replace(ROW, busy_ranks=1), CLUSTER)]) == {}
