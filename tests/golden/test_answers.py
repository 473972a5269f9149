"""Commands answer as kept; after a change on purpose, `make golden WRITE=1` keeps the new answers."""

import pytest

import predict
from predict.cli import sensitivity
from tests.golden.answers import differences, group_text, names_of_tests, normal, shipped_machine


@pytest.mark.parametrize("group", names_of_tests())
def test_answers_are_those_kept(group: str) -> None:
    with shipped_machine():
        now = group_text(group)
    assert differences(group, now) == []


def test_the_commands_are_theirs_again_afterwards() -> None:
    with shipped_machine():
        assert sensitivity.sensitivity is not predict.sensitivity
    assert sensitivity.sensitivity is predict.sensitivity


def test_what_differs_by_machine_and_day_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPTIME_DATA", "/data")
    said = "fitted 2026-11-21 12:30 in /tmp/x\nsearch: 3 of 9, 4 s left, 7 plans/s\n0.12345678901 ms\ndone in 3.2 s"
    assert normal(said, "/tmp/x") == "fitted {date} in {out}\n0.123456789 ms\ndone in {seconds}"
