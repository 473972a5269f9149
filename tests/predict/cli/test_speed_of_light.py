"""`predict speed-of-light`: text, JSON and files of a module and of a step."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.predict.command import Command

LAYER = "docs/examples/speed_of_light/transformer_layer.py"


def test_a_module_gives_text_files_and_json(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "results"
    told = command.json("speed-of-light", LAYER, "--output", str(folder))
    assert told["version"] == 1
    files = {path.name: yaml.safe_load(path.read_text()) for path in folder.iterdir()}
    assert files == {"analysis.yaml": told["analysis"], "perf_h100-sxm.yaml": told["perf"]}
    total = told["analysis"]["total"]
    assert total["flops"] == 2 * total["macs"]
    assert total["unfused_elements"] == total["model_io_elements"] + total["intermediate_elements"]
    text = command.text("speed-of-light", LAYER)
    assert all(
        word in text for word in ("documented", "intended", "kernels", "scaled_dot_product_attention", "MACs per byte")
    )
