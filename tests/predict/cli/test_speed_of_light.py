"""`predict speed-of-light`: text, JSON and files of a module and of a step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from predict.cli import main

LAYER = "docs/examples/speed_of_light/transformer_layer.py"


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
