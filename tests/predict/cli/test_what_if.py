"""The commands of what-if and of other tools, as their user runs them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from predict.cli import main
from sampling.files.places import CONFIGS

LLAMA, DEMO = (str(CONFIGS / "runs" / f"{name}.yml") for name in ("llama3-70b-64xh100", "demo"))


def test_sweep_shows_writes_and_tells_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "sweep.csv"
    arguments = ["sweep", LLAMA, "--vary", "plan.tp=1,4", "--output", str(output)]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "2 combinations, 1 can run" in text
    assert "plan.sp: true needs plan.tp above 1" in text
    assert main([*arguments, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["varied"] == {"plan.tp": [1, 4]}
    read = list(csv.DictReader(output.read_text().splitlines()))
    assert float(read[1]["t_step"]) == content["rows"][1]["t_step"]
    assert read[0]["reason"] == content["rows"][0]["reason"] != ""


def test_compare_lists_settings_headings_and_terms(capsys: pytest.CaptureFixture[str]) -> None:
    other = str(CONFIGS / "runs" / "deepseek-v3-1024xh100.yml")
    assert main(["compare", LLAMA, other]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "model llama3-70b → deepseek-v3" in text
    assert "B − A" in text
    assert "activations" in text
    assert "whose times are told per" in text
    assert main(["compare", LLAMA, other, "--json"]) == 0
    (difference,) = json.loads(capsys.readouterr().out)["others"]
    assert sum(difference["change_us"].values()) == pytest.approx(difference["step_change_us"])


def test_sensitivity_and_days(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sensitivity", DEMO]) == 0
    assert "carried over to a device with another figure" in capsys.readouterr().out
    assert main(["sensitivity", DEMO, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"][0]["name"] == "peak_tflops.fp32"
    assert main(["days", LLAMA, "--tokens", "2T", "--price", "$2.5/gpu-h"]) == 0
    text = capsys.readouterr().out
    assert "tokens      2T in 1,907,349 steps" in text
    assert "cost        $" in text
    assert "90% of the time" in text
    assert main(["days", DEMO, "--tokens", "300M", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["energy_mwh"] is content["cost"] is None
    assert content["days"]["low"] < content["days"]["median"] < content["days"]["high"]


def test_days_of_what_does_not_fit_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["days", LLAMA, "--tokens", "1T", "--set", "batch.seq_len=32768"]
    assert main(arguments) == 0
    assert "DOES NOT FIT" in capsys.readouterr().out
    assert main([*arguments, "--check"]) == 4


def test_export_and_import_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", LLAMA, "--to", "megatron-lm", "--output", str(tmp_path)]) == 0
    script = tmp_path / "llama3-70b-64xh100.megatron-lm.sh"
    told = capsys.readouterr()
    assert told.out == ""
    assert "not expressed: execution.framework: 'nemo'" in told.err
    read = ["import-config", str(script), "--set", "cluster.hardware=h100"]
    assert main([*read, "--output", str(tmp_path / "run.yml")]) == 0
    assert main(["one-batch", str(tmp_path / "run.yml")]) == 0
    capsys.readouterr()
    assert main([*read, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["plan"]["vpp"] == 5


ERRORS = {
    "sweep RUN": "--vary: missing",
    "sweep RUN --vary plan.tpp=1": "did you mean 'plan.tp'",
    "sweep RUN --vary batch.micro=1 --output x.xls": "end the name in .csv or .parquet",
    "compare RUN": "alone has nothing beside it",
    "days RUN --tokens 2X": "--tokens: '2X' is not a number of tokens",
    "days RUN --tokens 2T --price 2.5": "is not a price above 0 with its unit",
    "days RUN --tokens 2T --goodput 2": "--goodput: 2 is not a share",
    "export RUN --to nemmo": "did you mean 'nemo'",
    "import-config RUN": "is a run config already",
}


@pytest.mark.parametrize("command", ERRORS)
def test_bad_input_is_one_clear_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([DEMO if word == "RUN" else word for word in command.split()]) == 2
    told = capsys.readouterr()
    assert ERRORS[command] in told.err
    assert len(told.err.strip().splitlines()) == 1
    assert told.out == ""
