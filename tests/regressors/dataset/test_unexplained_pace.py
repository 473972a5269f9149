"""What rows of one moment are off by together, which the readings of the pace leave unexplained."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from regressors.dataset.unexplained_pace import unexplained
from sampling.hardware.cluster import Cluster
from sampling.store.sample import Sample
from tests.sampling.store.test_pace import CLUSTER, ROW

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
