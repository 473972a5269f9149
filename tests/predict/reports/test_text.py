"""Lines that all reports share: what a prediction rests on, and names from files, which are text."""

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from predict import one_batch, one_batch_memory
from predict.reports import text
from predict.reports.memory import memory_text
from predict.reports.pictures.memory_plot import save_memory_plot
from predict.reports.pictures.schedule_plot import save_plot
from predict.reports.prediction import prediction_text
from predict.reports.text import fact, last_lines, stacked, uneven_counts
from sampling.files.places import CONFIGS


def imported(*sessions: dict[str, Any]) -> dict[str, Any]:
    manifest = {"profile": "p", "device": {"name": "GPU", "imported": True}, "sessions": list(sessions)}
    return {"samples": {"provenance": manifest}, "sources": {}, "hardware": "GPU"}


def test_a_source_that_brought_no_row_is_not_named() -> None:
    measured = {"date": "2026-01-01", "source": "tables", "rows": 7}
    ratios = {"date": "2026-01-01", "source": "ratio from another device", "rows": 0}
    assert last_lines(imported(measured, ratios), analytic=False) == [
        "samples: p, imported from tables for GPU, 2026-01-01"
    ]
    (line,) = last_lines(imported(measured, ratios | {"rows": 2}), analytic=False)
    assert "imported from tables, ratio from another device for GPU" in line


def test_a_count_that_is_not_whole_says_of_what_it_is_a_mean() -> None:
    assert uneven_counts([8, 16.0], 4) == []
    assert uneven_counts([8, 2.5], 2) == ["a count that is not whole: the mean of 2 pipeline ranks"]
    assert uneven_counts([1280.5], 2) == [], "it is shown as 1,280"
    assert uneven_counts([1 / 3], 1) == ["a count that is not whole: a call of which the GPU does a part"]
    (both,) = uneven_counts([2.5, 1 / 3], 2)
    assert "the mean of 2 pipeline ranks, or a call of which" in both


# What does not fit a narrow terminal.


def printed(report: Any, width: int) -> list[str]:
    console = Console(width=width, file=StringIO(), highlight=False)
    console.print(report)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text.splitlines()


def test_a_fact_that_is_wrapped_goes_on_beside_its_label() -> None:
    first, *others = printed(stacked(fact("interval", "[bold]composition[/] of calls · stragglers " * 3)), 40)
    assert first.startswith("  interval    composition of calls")
    assert len(others) > 1 and all(line.startswith(" " * 14) for line in others)


def test_a_line_that_is_wrapped_goes_on_to_the_right_of_its_start() -> None:
    for indent in ("", "  ", "    "):
        first, *others = printed(stacked(f"{indent}[bold]plain[/] " + "words " * 20), 40)
        assert first.startswith(f"{indent}plain words")
        assert len(others) > 1 and all(line.startswith(f"{indent}  words") for line in others)


@pytest.mark.parametrize(("width", "columns"), [(80, "state  activations  other   peak"), (120, "device   peak")])
def test_a_narrow_terminal_has_fewer_columns(width: int, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "PIPE_WIDTH", width)
    lines = printed(memory_text(one_batch_memory(CONFIGS / "runs" / "llama3-70b-64xh100.yml")), width)
    (ranks,) = (line.rstrip() for line in lines if line.lstrip().startswith("rank"))
    assert ranks.endswith(columns) and "…" not in ranks


# Names that come from files are shown as text, whatever rich or matplotlib would make of them.

NAME = "[red]a[/b] $x $y"


def test_a_name_is_text_in_a_report_and_in_a_plot(tmp_path: Path) -> None:
    found = one_batch(CONFIGS / "runs" / "demo.yml")
    named = replace(found, run=replace(found.run, name=NAME, model=replace(found.run.model, name=NAME)))
    console = Console(width=200, record=True, quiet=True)
    with console.capture() as shown:
        console.quiet = False
        console.print(prediction_text(named))
    assert shown.get().count(NAME) == 2
    save_memory_plot(named.memory_timeline, named.memory, tmp_path / "plot.svg", bubble_fraction=0.1)
    save_plot(named.timeline, tmp_path / "schedule.svg", title=NAME, about=NAME)
    assert "$x $y" in (tmp_path / "plot.svg").read_text()
    assert (tmp_path / "schedule.svg").read_text().count("[red]a[/b] $x $y</text>") == 2
