"""The lines on what a prediction rests on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from predict.cli import main
from predict.reports.text import last_lines

RUN = str(Path(__file__).resolve().parents[3] / "configs" / "runs" / "llama3-70b-64xh100.yml")


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


def test_sources_are_one_line_unless_all_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["one-batch", RUN]) == 0
    short = capsys.readouterr().out
    assert "list them with `predict one-batch … --sources`" in short.splitlines()[-1]
    assert main(["one-batch", RUN, "--sources"]) == 0
    full = capsys.readouterr().out
    assert "  peak_tflops: NVIDIA H100 data sheet" in full
    assert "list them" not in full
