"""Signals at random moments and poor surroundings, a few of each; `python -m tests.trust.interruptions` tries more."""

from __future__ import annotations

import math

import pytest

from tests.trust.interruptions import SURROUNDINGS, TRIALS, Surroundings, interrupted, surrounded

QUICK = {trial.name: trial for trial in TRIALS if trial.name in ("record", "search --save")}


@pytest.mark.parametrize("name", QUICK)
def test_what_was_finished_before_a_signal_is_there_after_it(name: str) -> None:
    tried = interrupted(QUICK[name], range(2), until=math.inf)
    assert tried.wrong == []
    assert tried.cases == 2


@pytest.mark.parametrize("given", SURROUNDINGS, ids=lambda given: given.name)
def test_a_run_is_recorded_in_poor_surroundings_or_it_is_said_why_not(given: Surroundings) -> None:
    tried = surrounded(QUICK["record"], given)
    if given.tmpfs and not tried.cases:
        pytest.skip("no file system can be mounted here")
    assert tried.wrong == []
