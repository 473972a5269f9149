"""Progress where stderr is not a terminal."""

import pytest

from sampling import progress
from sampling.progress import progress_display


def test_lines_come_now_and_then_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress_display("fitting") as show:
        for done in (1, 2, 3, 4):
            now[0] += 10
            show(done, 4, f"operator {done}")
        show(4, 4, "operator 4")
    assert capsys.readouterr().err.splitlines() == [
        "fitting: 2 of 4, 20 s left, operator 2",
        "fitting: 4 of 4, 0 s left, operator 4",
    ]


def test_the_time_left_of_a_budget_is_not_estimated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress_display("sampling", budget_s=60) as show:
        now[0] = 45
        show(0, 8, "")
    assert capsys.readouterr().err == "sampling: 0 of 8, 15 s left at most\n"
