"""The ledger as a user gets it: JSON of a stable shape, a long table, text, and refusals by name."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest

import predict
from predict.cli import main
from predict.ledger.books import CONVENTIONS
from predict.ledger.verl_flops import verl_peak_flops_per_us
from sampling.errors import UserError
from sampling.files.places import CONFIGS
from sampling.hardware.cluster import hardware_facts

DEMO = str(CONFIGS / "runs" / "demo.yml")


def _output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["ledger", DEMO, *arguments]) == 0
    return capsys.readouterr().out


def test_json_has_the_books_and_every_convention(capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(_output(capsys, "--json"))
    assert content["version"] == 1
    assert {"compute", "memory", "communication", "schedule", "calibration", "mfu", "parameters"} <= content.keys()
    assert content["mfu"].keys() == set(CONVENTIONS)
    assert all(0 < mfu < 1 for mfu in content["mfu"].values())
    assert content["mfu"]["palm_no_lookup"] == pytest.approx(predict.one_batch(DEMO).mfu, rel=1e-12)
    assert content["parameters"] == {"total": 15733632, "active": 15733632}
    assert sum(content["account_us"].values()) == pytest.approx(content["step_time_us"]["median"], rel=1e-9)


def test_the_long_table_has_one_number_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(_output(capsys, "--csv"))))
    keys = [(row["book"], row["entry"], row["quantity"]) for row in rows]
    assert len(keys) == len(set(keys)) > 200
    assert all(float(row["value"]) == float(row["value"]) for row in rows)
    assert {row["book"] for row in rows} >= {"compute", "memory", "communication", "schedule", "calibration", "mfu"}


def test_text_names_what_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(_output(capsys, "--set", "model.model_type=phi3").split())
    assert "verl refused" in text
    assert "no estimator for 'phi3'" in text


def test_an_unknown_has_the_width_that_one_batch_tells(capsys: pytest.CaptureFixture[str]) -> None:
    share = math.expm1(predict.step_ledger(DEMO).calibration.unknowns["the profile's validation runs"])
    assert f"the profile's validation runs ±{share:.1%}" in " ".join(_output(capsys).split())
    assert main(["one-batch", DEMO]) == 0
    assert f"the profile's validation runs ±{share:.0%}" in capsys.readouterr().out


def test_the_ledger_from_python() -> None:
    ledger = predict.step_ledger(DEMO, ["plan.recompute=full"])
    assert ledger.mfu["hfu"].mfu > ledger.mfu["exact"].mfu


@pytest.mark.parametrize(
    ("hardware", "tflops"), [("h100-sxm", 989), ("a100-80gb", 312), ("gb200", 2500), ("b200", 2250), ("gh200", 989)]
)
def test_verl_divides_by_its_own_peaks(hardware: str, tflops: float) -> None:
    assert verl_peak_flops_per_us(hardware_facts(hardware)) == tflops * 1e6


@pytest.mark.parametrize(
    ("hardware", "why"), [("h100-pcie", "takes NVIDIA H100 PCIe for H100"), ("mi325x", "has no AMD Instinct MI325X")]
)
def test_a_device_that_verl_does_not_know_is_refused_by_name(hardware: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        verl_peak_flops_per_us(hardware_facts(hardware))


def test_half_widths_are_those_of_one_batch(capsys: pytest.CaptureFixture[str]) -> None:
    width = max(predict.one_batch(DEMO).unknowns.values())
    assert f"±{math.expm1(width):.1%}" in _output(capsys)
