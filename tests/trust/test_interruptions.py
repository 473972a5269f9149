"""Signals at random moments and poor surroundings, a few of each; `python -m tests.trust.interruptions` tries more."""

import math

import pytest

from tests.trust.interruptions import SURROUNDINGS, TRIALS, Surroundings, interrupted, surrounded

BY_NAME = {trial.name: trial for trial in TRIALS}


@pytest.mark.parametrize(("name", "signals"), [("record", 2), ("search --save", 1)])
def test_what_was_finished_before_a_signal_is_there_after_it(name: str, signals: int) -> None:
    tried = interrupted(BY_NAME[name], range(signals), until=math.inf)
    assert tried.wrong == []
    assert tried.cases == signals


@pytest.mark.parametrize("given", SURROUNDINGS, ids=lambda given: given.name)
def test_a_run_is_recorded_in_poor_surroundings_or_it_is_said_why_not(given: Surroundings) -> None:
    tried = surrounded(BY_NAME["record"], given)
    if given.tmpfs and not tried.cases:
        pytest.skip("no file system can be mounted here")
    assert tried.wrong == []
