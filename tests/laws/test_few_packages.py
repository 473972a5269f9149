"""A machine with a GPU and no pip: torch, numpy and PyYAML are enough to measure a run, and to predict it first."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from predict.layers.run_json import dump_run
from tests.predict.measurement.gpu_runs import MIXTURE, gpu_run

pytestmark = pytest.mark.usefixtures("starts_warm")
ABSENT = ("pandas", "pyarrow", "sklearn", "xgboost", "rich", "scipy", "joblib", "numba", "matplotlib", "transformers")
WITHOUT = f"import sys\nsys.modules.update(dict.fromkeys({ABSENT!r}))\n"
TRAIN = """
import json, pathlib, torch
from predict.measurement.gpu_steps import Span
from predict.measurement.one_gpu import train
from predict.layers.run_json import load_run
run = load_run(pathlib.Path(sys.argv[1]).read_text())
once = Span(seconds=0.0, steps=1)
print(json.dumps(train(run, torch.device("cpu"), warm_up=once, timed=once)))
"""
PREDICT = """
from predict.cli import main
sys.exit(main(sys.argv[1:]))
"""


def without(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT + script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_step_is_measured(tmp_path: Path) -> None:
    config = tmp_path / "run.json"
    config.write_text(dump_run(gpu_run(MIXTURE)))
    done = without(TRAIN, str(config))
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["wall_s"]) == 1


@pytest.mark.parametrize(
    ("arguments", "exit_code", "printed"),
    [
        (["one-batch", "configs/runs/this-gpu/dense.yml", "--json"], 0, ""),
        (["measure", "configs/runs/this-gpu/dense.yml", "--json"], 2, "torch finds no GPU on this machine"),
        (["validate", "this-gpu", "--json"], 2, "torch finds no GPU on this machine"),
    ],
)
def test_commands_come_as_far_as_the_gpu(arguments: list[str], exit_code: int, printed: str) -> None:
    done = without("import torch; torch.cuda.is_available = lambda: False" + PREDICT, *arguments)
    assert done.returncode == exit_code, done.stderr
    assert printed in done.stderr
