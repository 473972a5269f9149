"""Rows that contradict each other, differ from moment to moment or were timed at a poor pace are taken again."""

from dataclasses import replace

import pytest

from sampling.call import Request
from sampling.choosing.contradictions import MOST_ROWS, contradictory, worth_retaking
from sampling.operators.gemm import Gemm
from sampling.store.sample import Sample
from tests.made_rows import row as made_row


def row(m: int, time_us: float, *, k: int = 64, pace: float = 1.0) -> Sample:
    return made_row(Gemm(dtype="fp32", m=m, n=64, k=k), "forward", time_us, threads=1, busy_ranks=2, pace=pace)


def found(rows: list[Sample]) -> list[int]:
    return sorted(call.fields()["m"] for call, _ in contradictory(rows))


def test_more_work_in_less_time_is_a_contradiction_of_both_calls() -> None:
    assert found([row(2, 22.5), row(3, 21.3), row(4, 30.0)]) == []
    assert found([row(1, 39.0), row(2, 40.0), row(3, 26.0), row(4, 60.0)]) == [1, 2, 3]


def test_calls_that_differ_in_work_both_ways_do_not_contradict() -> None:
    assert found([row(2, 40.0), row(4, 20.0, k=32)]) == []


def test_the_median_at_the_reference_pace_counts() -> None:
    assert found([row(2, 40.0, pace=0.5), row(4, 30.0)]) == []
    assert found([row(2, 20.0), row(2, 21.0), row(2, 90.0), row(4, 30.0)]) == []


@pytest.mark.parametrize(
    ("rows", "again"),
    [
        ([row(2, 20.0)] * 3, False),
        ([row(2, 20.0, pace=0.8)] * 3, True),
        ([row(2, 20.0), row(2, 20.0), row(2, 20.0, pace=0.8)], True),
        ([*[row(2, 20.0)] * 3, row(2, 20.0, pace=0.8)], False),
        ([row(2, 20.0, pace=0.8)] * MOST_ROWS, False),
        ([row(2, 20.0), row(2, 21.0), row(2, 36.0)], True),
        ([row(2, 20.0), row(2, 26.0)], True),
        ([*[row(2, 20.0)] * 3, row(2, 36.0)], False),
        ([row(2, 20.0), row(2, 21.0), row(2, 23.5, pace=0.96)], False),
        ([row(2, 40.0), row(3, 20.0)], True),
        ([replace(row(2, 40.0), quarantine="noisy"), row(3, 20.0)], False),
        ([], False),
    ],
)
def test_doubtful_rows_are_taken_again_a_few_times(rows: list[Sample], again: bool) -> None:
    request = Request(call=row(2, 1.0).call, phases=("forward", "backward"))
    assert worth_retaking([request], rows, 2) == [replace(request, phases=("forward",))] * again
    assert worth_retaking([request], rows, 1) == []


def test_the_rows_that_are_off_by_the_most_are_taken_again_first() -> None:
    rows = [*[row(2, 20.0, pace=0.9)] * 3, row(8, 50.0), row(8, 80.0)]
    requests = [Request(call=row(m, 1.0).call, phases=("forward",)) for m in (2, 8)]
    assert worth_retaking(requests, rows, 2) == [requests[1], requests[0]]
