"""`predict speed-of-light`: text, JSON and files of a module and of a step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from predict.cli import main

LAYER = "docs/examples/speed_of_light/transformer_layer.py"
CONFIG = "configs/runs/demo.yml"


def test_a_module_gives_text_files_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "results"
    assert main(["speed-of-light", LAYER, "--output", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["version"] == 1
    files = {path.name: yaml.safe_load(path.read_text()) for path in folder.iterdir()}
    assert files == {"analysis.yaml": told["analysis"], "perf_h100-sxm.yaml": told["perf"]}
    total = told["analysis"]["total"]
    assert total["flops"] == 2 * total["macs"]
    assert total["unfused_elements"] == total["model_io_elements"] + total["intermediate_elements"]
    assert main(["speed-of-light", LAYER]) == 0
    text = capsys.readouterr().out
    assert all(
        word in text for word in ("documented", "intended", "kernels", "scaled_dot_product_attention", "MACs per byte")
    )


def test_a_step_gives_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["speed-of-light", CONFIG, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["operators"][0]["predicted_over_bound"] == pytest.approx(
        told["operators"][0]["predicted_us"] / told["operators"][0]["bound_us"]
    )
    assert main(["speed-of-light", CONFIG]) == 0
    assert "worst first" in capsys.readouterr().out


FAULTS = {
    "a device beside a config": ([CONFIG, "--arch", "h100-sxm"], "--arch: goes with FILE.py"),
    "a setting beside a file": ([LAYER, "--set", "plan.tp=2"], "--set: goes with a run config"),
    "an unknown device": ([LAYER, "--arch", "h1000"], "hardware 'h1000' is not in the catalogue"),
    "a precision that the device lacks": ([LAYER, "--arch", "a100-80gb", "--precision", "fp8"], "has no such peak"),
    "no file": (["nothing.py"], "nothing.py: there is no such file"),
    "a folder that is a file": ([LAYER, "--output", "README.md"], "--output: README.md is a file; give a folder"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_in_a_line(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, told = FAULTS[fault]
    assert main(["speed-of-light", *arguments]) == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert shown.out == ""
