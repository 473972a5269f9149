"""The lines on what a prediction rests on."""

from __future__ import annotations

from typing import Any

from predict.reports.text import last_lines


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
