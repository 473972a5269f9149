"""The demonstration of chosen rows: crossings of the target, and a run on a small table."""

from pathlib import Path

import numpy as np
import pytest

from regressors.accuracy import rows_against_error
from regressors.accuracy.rows_against_error import Curves, as_json, as_text, curve, main, reaches
from tests.regressors.synthetic_operators import random_products, sampled


def test_the_target_is_reached_where_the_error_stays_below() -> None:
    assert reaches((100, 200, 400), (4.0, 6.0, 3.0), 5.0) == pytest.approx(200 * 2 ** (np.log(6 / 5) / np.log(2)))
    assert reaches((100, 200), (4.0, 3.0), 5.0) == 100
    assert reaches((100, 200), (9.0, 8.0), 5.0) is None


def test_the_ratio_is_of_the_rows_that_both_need() -> None:
    made = Curves(table="gemm", rows=(100, 200, 400), chosen=(6.0, 4.0, 3.0), random=((9.0, 6.0, 4.0), (9.0, 6.0, 4.0)))
    assert 0.4 < made.ratio < 0.6
    assert as_json("h100", [made])["tables"][0]["ratio"] == made.ratio
    assert any("chosen needs" in line for line in as_text("h100", [made]))


def test_a_table_gives_a_curve_of_each_way_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_against_error, "SIZES", (50, 80, 5000))
    data = sampled(random_products(200, seed=0), noise=0.01)
    for way in (rows_against_error.CHOSEN, 1):
        errors = curve(data, way)
        assert len(errors) == 2
        assert all(0 < error < 20 for error in errors)


def test_without_the_tables_the_command_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--measurements", str(tmp_path), "--json"]) == 3
    said = capsys.readouterr()
    assert "aiconfigurator" in said.err
    assert not said.out
