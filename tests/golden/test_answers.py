"""Commands answer as kept; after a change on purpose, `make golden WRITE=1` keeps the new answers."""

from __future__ import annotations

import pytest

from tests.golden.answers import differences, group_text, names, normal, shipped_machine

HALF_A_MINUTE = {
    "searches-deepseek-v3-1024xh100",
    "serving-at-once",
    "serving-closed-loop",
    "serving-mixtral-2xh100",
    "serving-long-answers",
    "serving-long-prompts",
    "rl-qwen3-30b-a3b-grpo",
    "rl-qwen3.5-35b-a3b-grpo",
}
"""Groups that `make golden` alone compares: others of their kind take a tenth of the time."""


@pytest.mark.parametrize("group", [name for name in names() if name not in HALF_A_MINUTE])
def test_answers_are_those_kept(group: str) -> None:
    with shipped_machine():
        now = group_text(group)
    assert differences(group, now) == []


def test_what_differs_by_machine_and_day_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPTIME_DATA", "/data")
    said = "fitted 2026-11-21 12:30 in /tmp/x\nsearch: 3 of 9, 4 s left, 7 plans/s\n0.12345678901 ms\ndone in 3.2 s"
    assert normal(said, "/tmp/x") == "fitted {date} in {out}\n0.123456789 ms\ndone in {seconds}"
