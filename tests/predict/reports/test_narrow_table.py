"""Tables in narrow terminals: no figure is cut."""

from __future__ import annotations

import pytest

from predict.reports.text import table
from sampling.files.places import CONFIGS
from tests.golden.answers import CUT, NARROW
from tests.predict.command import Command

ROWS = [(f"a_long_name_of_{row}", 1234567.25 * row, 0.0123 * row) for row in (1, 2)]
FIGURES = ("1,234,567.25", "2,469,134.50", "0.0123", "0.0246")


@pytest.mark.parametrize("columns", [26, 40, 60])
def test_names_are_folded_and_figures_stay_whole(columns: int) -> None:
    from rich.console import Console

    made = table(
        "figures",
        ROWS,
        {"name": lambda row: row[0]},
        {"a heading of several words": lambda row: f"{row[1]:,.2f}", "share": lambda row: f"{row[2]:.4f}"},
    )
    console = Console(width=columns)
    with console.capture() as captured:
        console.print(made)
    printed = captured.get()
    assert "…" not in printed
    assert all(figure in printed for figure in FIGURES)
    assert max(map(len, printed.splitlines())) <= columns


DEMO = str(CONFIGS / "runs" / "demo.yml")


@pytest.mark.parametrize(
    "words",
    [
        ("ledger", DEMO),
        ("sweep", DEMO, "--vary", "batch.micro=1,2", "--vary", "plan.recompute=none,full"),
        ("speed-of-light", DEMO),
        ("memory", DEMO),
    ],
    ids=" ".join,
)
def test_an_answer_keeps_its_figures_in_eighty_columns(
    words: tuple[str, ...], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m tests.golden.answers --narrow` does the same for every command and shipped config."""
    monkeypatch.setenv("STEPTIME_WIDTH", "")  # --width sets it, and it is put back after the test
    lines = command.text(*words, "--width", str(NARROW)).splitlines()
    assert [line for line in lines if CUT.search(line) or len(line) > NARROW] == []
