"""Public traces of other projects' runs (HolisticTraceAnalysis' samples, where they are at hand): their ledgers close."""

from __future__ import annotations

from pathlib import Path

import pytest

from predict import load
from predict.explain.measured import read_measured
from tests.oracles.shared import SHARED

TRACES = sorted((SHARED / "data" / "traces").glob("**/*.json.gz"))
CONFIG = "configs/runs/demo.yml"
MISSING = "no public traces in ../shared/data/traces"


@pytest.mark.skipif(not TRACES, reason=MISSING)
@pytest.mark.parametrize("trace", TRACES or [Path("none")], ids=lambda path: path.name)
def test_the_ledger_of_a_public_trace_closes(trace: Path) -> None:
    measured = read_measured(trace, load(CONFIG))
    assert measured.step_us > 0
    assert sum(measured.headings.values()) == pytest.approx(measured.step_us)
    assert all(time_us >= -1e-6 * measured.step_us for time_us in measured.headings.values())
