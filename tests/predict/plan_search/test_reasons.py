"""The reasons of plans that a search leaves out are a reader's words, each of a rule that exists."""

from __future__ import annotations

from predict.config.rules import RULES
from predict.plan_search.space.reasons import BROKEN, reason_of


def test_a_reason_says_what_is_wrong_with_the_plan() -> None:
    reasons = {rule.check.__name__: reason_of(rule) for rule in RULES}
    assert set(reasons) == set(BROKEN)
    assert reasons["degrees_make_the_world"] == "plan.dp: tp · pp · cp · dp is not the number of GPUs"
    assert reasons["schedule_runs"].startswith("plan.schedule: the schedule does not run")
