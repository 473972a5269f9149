"""Tables of measured runs beside the clone: read with all their columns, and judged by the commands that take them."""

import csv
import json

import pytest

from predict.cli import main
from predict.validation.published_row import read_rows
from tests.oracles.shared import SHARED

TABLES = SHARED / "truth"


@pytest.mark.parametrize("name", ["training_runs", "new_runs", "amd_runs", "layouts", "memory_golden"])
def test_published_tables_are_read_with_all_their_columns(name: str) -> None:
    path = TABLES / f"{name}.csv"
    with path.open(newline="") as file:
        names = [cells.get("row_id") for cells in csv.DictReader(file)]
    rows = list(read_rows(path))
    assert [each.row_id for each in rows] == [name or f"row {place}" for place, name in enumerate(names, 1)]
    if name == "training_runs":
        assert not [each.fault for each in rows if each.fault]
    assert any(not each.fault for each in rows)


def test_all_but_hybrids_and_tests_of_unknown_size_are_expressed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "memory", "--truth", str(TABLES / "memory_golden.csv"), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    reasons = {row["why"].split(":")[0] for row in content["rows"] if row["status"] != "predicted"}
    assert reasons <= {"n_gpus", "kind", "vocab_padded"}
    assert all(each["fits_in_vain"] == 0 for each in content["classes"])


def test_every_measured_layout_is_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "ranking", "--truth", str(TABLES / "layouts.csv"), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert len(content["groups"]) == 5
    assert all("status: error" in why for why in content["left_out"])
    assert content["summary"]["tau"] > 0.8
    # the rule as facts of these plans have it, with what fits given
    assert content["summary"]["rule_regret"] == 0
