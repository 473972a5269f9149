"""What the judge of fuzzed cases counts as a hang."""

import time
from collections.abc import Iterator

import pytest

from tests.fuzz import judgement
from tests.fuzz.judgement import Counts


def waits() -> Iterator[str]:
    time.sleep(60)
    yield from ()


def works() -> Iterator[str]:
    while True:
        pass
    yield


@pytest.mark.parametrize(("limit", "work"), [("MOST_WALL_S", waits), ("MOST_S", works)])
def test_a_case_that_waits_or_works_without_end_hangs(
    limit: str, work: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judgement, limit, 0.05)
    counts = Counts()
    counts.judge("a case", work)  # type: ignore[arg-type]
    counts.judge("the next", tuple)
    assert (counts.hangs, counts.answered, counts.faults) == (1, 1, ["a case: hangs"])
