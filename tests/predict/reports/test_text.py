"""Lines that all reports share: what a prediction rests on, and names from files, which are text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from predict import one_batch
from predict.reports.pictures.memory_plot import save_memory_plot
from predict.reports.pictures.schedule_plot import save_plot
from predict.reports.prediction import prediction_text
from predict.reports.text import last_lines
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
