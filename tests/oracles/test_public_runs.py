"""Public logs and traces of known runs, where they are at hand, beside what is predicted of them: docs/explanation/accuracy-from-your-runs.md has
the table and why runs are outside."""

from statistics import median

import pytest

from tests.oracles.public_runs import RUNS, TRACES, held, table

OUTSIDE = frozenset(("modded-nanogpt, 124M, 8 H100", "Qwen3 8B, prompts of 15,360 tokens, SGLang on MI300X"))
"""Runs whose measured step lies outside the interval."""


def test_known_runs_are_predicted() -> None:
    if not TRACES.is_dir():
        pytest.skip("the public logs and traces are not at hand")
    rows = [*held()]
    assert len(rows) == len(RUNS)
    assert {row.name for row in rows if not row.within} <= OUTSIDE, table(rows)
    assert median(abs(row.predicted_us / row.measured_us - 1) for row in rows) < 0.1, table(rows)
