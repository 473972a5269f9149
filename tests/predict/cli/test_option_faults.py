"""Faults of a command's options: all of them are told at once."""

from __future__ import annotations

import pytest

from predict.cli import main
from sampling.files.places import CONFIGS, DATA_VARIABLE, SHIPPED_DATA

DEMO = str(CONFIGS / "runs" / "demo.yml")
GRPO = str(CONFIGS / "rl" / "this-machine" / "grpo.yml")


BELOW_A_FILE, BELOW_PROC = f"{DEMO}/x", "/proc/x"
"""Places where nobody, not even root, makes a file."""
SERVING = str(CONFIGS / "serving" / "llama3-8b-h100.yml")


@pytest.mark.parametrize("place", [BELOW_A_FILE, BELOW_PROC])
@pytest.mark.parametrize(
    ("command", "suffix"),
    [
        (f"measure {DEMO} --trace", ""),
        (f"sweep {DEMO} --vary batch.micro=1,2 --output", ".csv"),
        (f"sweep {SERVING} --vary placement.tp=1,2 --output", ".parquet"),
        (f"sweep {GRPO} --vary rl.n=2,4 --output", ".csv"),
        (f"calibrate {DEMO} --measured 1s --output", ".yml"),
        (f"validate published --calibrate-on {DEMO} --calibration", ".yml"),
        (f"record {DEMO} --log 1s --data", ""),
        (f"report {DEMO} -o", ".html"),
        (f"plot timeline {DEMO} -o", ".svg"),
        (f"trace {DEMO} -o", ".json"),
        (f"trace {DEMO} --format chakra -o", ""),
        (f"export {DEMO} --to nemo --output", ""),
        (f"calls {DEMO} --output", ".json"),
        (f"benchmark {DEMO} --gpus 1 --output", ".json"),
        (f"memory {DEMO} --timeline", ".svg"),
        (f"memory {DEMO} --save-benchmark", ".json"),
        (f"schedule {DEMO} --order", ".csv"),
        (f"schedule {DEMO} --trace", ".json"),
        (f"search {DEMO} --save", ".json"),
        (f"search {DEMO} --write", ""),
        (f"search {DEMO} --pareto", ".csv"),
        (f"search {DEMO} --report", ".html"),
        (f"serving {SERVING} --sweep rate=1,2 -o", ".svg"),
        (f"serving-fit {DEMO} --config {SERVING} --output", ".json"),
        ("one-batch --model llama3-8b --gpus 8xh100 --save-config", ".yml"),
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_the_work(
    command: str, suffix: str, place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(SHIPPED_DATA))  # --data sets it for what follows
    code = main([*command.split(), place + suffix])
    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    assert f"{place}{suffix}" in told.err
    assert "cannot be written" in told.err
    assert ".tmp" not in told.err
