"""Tables in narrow terminals: no figure is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from predict.reports.text import figures_table, table
from sampling.files.places import CONFIGS
from tests.golden.answers import CUT, NARROW
from tests.predict.command import Command

if TYPE_CHECKING:
    from rich.table import Table

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


def test_a_title_that_is_wider_than_the_terminal_is_wrapped() -> None:
    made = table("where the step goes, mean over pipeline ranks", ROWS, {"name": lambda row: row[0]}, {})
    assert "".join(f"{line.strip()} " for line in printed(made, 24)).startswith(
        "where the step goes, mean over pipeline ranks "
    )


def printed(made: Table, columns: int) -> list[str]:
    from rich.console import Console

    console = Console(width=columns)
    with console.capture() as captured:
        console.print(made)
    return captured.get().splitlines()


def test_each_part_has_the_keys_that_tell_its_rows_apart() -> None:
    """Figures that are keys, as those of a sweep, and a first column that is one, as a pipeline rank."""
    values = [
        [f"key{row}{column}" if column < 2 else f"{row}{column}.123456" for column in range(6)] for row in range(2)
    ]
    for keys, repeated in ((2, ("key00", "key01", "key10", "key11")), (0, ("key00", "key10"))):
        made = figures_table("", (), [f"column {number}" for number in range(6)], keys=keys)
        for row in values:
            made.add_row(*row)
        text = "\n".join(printed(made, 30))
        assert all(text.count(key) == text.count("column\n") or text.count(key) > 1 for key in repeated)
        assert all(text.count(cell) == 1 for row in values for cell in row[2:])


def test_words_of_usual_length_are_not_broken() -> None:
    names = [("eight nodes, reserved", "64 NVIDIA H100 80GB HBM3"), ("cross_entropy", "documented")]
    made = table(
        "",
        names,
        {"offer": lambda row: row[0], "GPUs": lambda row: row[1]},
        {f"figure {number}": lambda row: "1,234 (1,111 to 1,357)" for number in range(3)},
    )
    text = "\n".join(printed(made, 60))
    for word in ("reserved", "NVIDIA", "cross_entropy", "documented"):
        assert word in text


def test_a_long_name_goes_on_after_its_underscore() -> None:
    made = table("", [("gradient_accumulation",)], {"": lambda row: row[0]}, {"figure": lambda row: "1,234,567 of 1"})
    lines = [line.split() for line in printed(made, 32)]
    assert lines[-2:] == [["gradient_", "1,234,567", "of", "1"], ["accumulation"]]


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


@pytest.mark.parametrize(
    "words", [("--set", "plan.tp=3"), ("--jsn", "--no-such-option", "--another-option-that-is-unknown")]
)
def test_errors_are_as_wide_as_the_answer(
    words: tuple[str, ...], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPTIME_WIDTH", "")
    monkeypatch.setenv("COLUMNS", "60")  # argparse writes the usage itself
    try:
        said = command.refused("one-batch", DEMO, *words, "--width", "60")
    except SystemExit:
        said = command.capsys.readouterr().err
    assert "error: " in said and max(map(len, said.splitlines())) <= 60
    assert any(line.startswith("  ") for line in said.partition("error: ")[2].splitlines()[1:])
