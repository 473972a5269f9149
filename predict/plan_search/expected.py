"""Seconds that a search is expected to take, said before it starts."""

from __future__ import annotations

from collections.abc import Sequence

from predict.plan_search.floors.block_times import sets_of_blocks
from predict.plan_search.survey import Survey

OF_AN_ESTIMATE = 0.4
"""Time to price a set of blocks over that of a full estimate (tests/bench/search.py: DeepSeek-V3 on 1,024 GPUs)."""
ESTIMATES = 100
"""Plans that are priced in full; 30 to 100 for the 20 best of the searches in tests/bench/search.py."""


def expected_seconds(surveys: Sequence[Survey], seconds_each: float, jobs: int) -> float:
    """The time of a search whose full estimates take `seconds_each`."""
    whole = [own for own in surveys if own.space.question.base.execution.whole_layers]
    sets = sum(len(sets_of_blocks(own.space)[0]) for own in surveys if own not in whole and len(own.space.rows))
    plans = sum(len(own.space.rows) for own in whole) + min(ESTIMATES, sum(len(own.space.rows) for own in surveys))
    return seconds_each * (OF_AN_ESTIMATE * sets + plans) / jobs
