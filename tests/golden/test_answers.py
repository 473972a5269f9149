"""Commands answer as kept; `make golden` holds every group, and `make golden WRITE=1` keeps new answers after a change on purpose."""

from __future__ import annotations

import pytest

from tests.golden.answers import differences, group_text, groups, kept_path, names, normal, shipped_machine

IN_THE_SUITE = ("runs-demo", "rl-grpo", "serving-busy", "searches-llama3-70b-64xh100", "help", "fuzz-0")
"""One group of each sort, whose configs reach every room; the others take another minute."""


@pytest.mark.parametrize("group", IN_THE_SUITE)
def test_answers_are_those_kept(group: str) -> None:
    with shipped_machine():
        now = group_text(group)
    assert differences(group, now) == []


def test_every_group_has_kept_answers() -> None:
    assert [name for name in names() if not kept_path(name).exists()] == []
    assert set(IN_THE_SUITE) - {"fuzz-0"} <= set(groups())


def test_what_differs_by_machine_and_day_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPTIME_DATA", "/data")
    said = "fitted 2026-11-21 12:30 in /tmp/x\nsearch: 3 of 9, 4 s left, 7 plans/s\n0.12345678901 ms\ndone in 3.2 s"
    assert normal(said, "/tmp/x") == "fitted {date} in {out}\n0.123456789 ms\ndone in {seconds}"
