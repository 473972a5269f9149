"""The error that a profile's validation runs showed, from the file that `predict validate` keeps."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from predict.prices import sampled as module
from sampling.errors import SamplesError
from sampling.files.places import DATA_VARIABLE


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    path = module.validation_path("mine")
    path.parent.mkdir()
    return path


def write(path: Path, errors: list[Any]) -> None:
    path.write_text(json.dumps({"version": 1, "rows": [{"error": error} for error in errors], "summary": {}}))


def test_it_is_students_interval_of_the_errors(kept: Path) -> None:
    write(kept, [0.02, -0.02] * 4)
    # 1.8595 is the 95 % quantile of Student's t with 8 degrees of freedom
    assert module.profile_error("mine") == pytest.approx(1.8595 * 0.02 * math.sqrt(9 / 8), rel=0.002)


def test_an_error_that_the_pace_of_the_machine_made_does_not_count(kept: Path) -> None:
    rows = [{"error": -0.3, "error_at_pace": 0.01} for _ in range(8)]
    kept.write_text(json.dumps({"version": 1, "rows": rows, "summary": {}}))
    assert module.profile_error("mine") == pytest.approx(1.8595 * 0.01 * math.sqrt(9 / 8), rel=0.01)


def test_what_the_bounds_of_calls_explain_is_not_counted_again(kept: Path) -> None:
    def error_of(calls_half_width: float) -> float:
        rows = [{"error": 0.02, "calls_half_width": calls_half_width} for _ in range(8)]
        kept.write_text(json.dumps({"version": 1, "rows": rows, "summary": {}}))
        found = module.profile_error("mine")
        assert found is not None
        return found

    assert math.hypot(error_of(0.03), 0.03) == pytest.approx(error_of(0.0))
    assert error_of(0.1) == 0.0


@pytest.mark.parametrize(("freedom", "quantile"), [(5, 2.015), (10, 1.8125), (30, 1.6973)])
def test_the_expansion_gives_the_tables_of_students_t(freedom: int, quantile: float) -> None:
    assert module.students_95(freedom) == pytest.approx(quantile, rel=0.003)


def test_too_few_runs_show_no_error(kept: Path) -> None:
    assert module.profile_error("mine") is None
    write(kept, [0.02] * (module.LEAST_ROWS - 1))
    assert module.profile_error("mine") is None


@pytest.mark.parametrize("error", [None, "small", -1, float("nan"), float("inf")])
def test_a_damaged_file_is_an_error_that_names_it(kept: Path, error: Any) -> None:
    write(kept, [0.02, error, 0.01, 0.03, 0.05])
    with pytest.raises(SamplesError, match=r"mine-steps\.json: rows\[1\]\.error: .* is not a relative error"):
        module.profile_error("mine")
