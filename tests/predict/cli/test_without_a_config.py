"""`--model … --gpus …` in place of a config."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from predict.cli import main
from sampling.files.places import CONFIGS

DEMO = str(CONFIGS / "runs" / "demo.yml")
LARGE = ("--model", "llama3-70b", "--gpus", "64xh100")


@pytest.mark.parametrize("command", ["one-batch", "memory"])
def test_an_answer_without_a_file(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "llama3-70b-64xh100.yml"
    assert main([command, *LARGE, "--set", "batch.micro=2", "--json", "--save-config", str(file)]) == 0
    made = json.loads(capsys.readouterr().out)
    assert main([command, str(file), "--json"]) == 0
    assert made.pop("config")["model"] == "llama3-70b"
    assert made == json.loads(capsys.readouterr().out)


def test_the_plan_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["one-batch", *LARGE]) == 0
    captured = capsys.readouterr()
    assert "llama3-70b-64xh100  llama3-70b, tp 8 + sp · pp 2 · dp 4 · ZeRO-1, 1f1b" in captured.out
    assert captured.err.startswith("plan: the smallest tp · pp that fits in memory")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "CONFIG, or --model with --gpus: missing"),
        (["--model", "gpt2"], 2, "--gpus: missing"),
        (["--gpus", "8xh100"], 2, "--model: missing"),
        ([DEMO, "--model", "gpt2"], 2, "--model: goes without CONFIG"),
        ([DEMO, "--save-config", "x.yml"], 2, "--save-config: goes without CONFIG"),
        ([*LARGE, "--batch", "0"], 2, "--batch: 0 is not a positive number"),
        ([*LARGE, "--save-config", "nowhere/x.yml"], 2, "there is no directory nowhere"),
        (["--model", "lama3-70b", "--gpus", "64xh100"], 2, "did you mean 'llama3-70b'?"),
        (["--model", "llama3-70b", "--gpus", "8xh100"], 4, "give 24xh100"),
    ],
)
def test_what_is_missing_wrong_or_too_small(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["one-batch", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
