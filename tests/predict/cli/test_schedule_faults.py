"""What `predict schedule` says of options, files and counts that it cannot take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from predict.cli import main
from tests.predict.cli.scheduled import DEMO, EVEN, ROOT


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ([*EVEN, "--forward", "inf"], "--forward: inf is not a time"),
        ([*EVEN, "--schedule", ""], "--schedule: '': no schedule is named"),
        ([*EVEN, "--trace", ""], "--trace: the path is empty"),
        ([*EVEN, "--plot", ""], "--plot: the path is empty"),
        ([*EVEN, "--order", ""], "--order: the path is empty"),
        (["--stage-times", "", "--microbatches", "4"], "--stage-times: the path is empty"),
        ([""], "CONFIG: the path is empty"),
    ],
)
def test_bad_options_are_named(capsys: pytest.CaptureFixture[str], options: list[str], fault: str) -> None:
    assert main(["schedule", *options]) == 2
    assert fault in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({"forward": [[1]], "backward_input": [[1]]}, "backward_weight: missing"),
        ({"forward": [[1]], "backward_input": [[1], [1]], "backward_weight": [[1]]}, "different ranks × chunks"),
        (
            {"forward": [[1], [1, 2]], "backward_input": [[1]], "backward_weight": [[1]]},
            "forward: rows of [1, 2] chunks",
        ),
        (
            {"forward": [["a"]], "backward_input": [[1]], "backward_weight": [[1]]},
            "forward[0][0]: 'a' is not a number; give a number of 0 or more",
        ),
        (
            {"forward": [[1]], "backward_input": [[1]], "backward_weight": [[-1]]},
            "backward_weight[0][0]: -1 is out of range",
        ),
        (
            {"forward": [[1]], "backward_input": [[1]], "backward_weight": [[1]], "p2p": [1]},
            "p2p: a list of 1; give one number\n",
        ),
        (
            {"forward": [[1], [1]], "backward_input": [[1], [1]], "backward_weight": [[1], [1]], "p2p": [1, 1]},
            "p2p: a list of 2; give one number, or a list of 1, one for each edge\n",
        ),
        (
            {"forward": 1, "p2p": "slow"},
            "p2p: 'slow' is not a number; give a number of 0 or more: one, or a list of them",
        ),
        ({"forward": 1, "p2p": [0, -1]}, "p2p[1]: -1 is out of range"),
        ({"forward": 1, "activation_bytes": [[-1]]}, "activation_bytes[0][0]: -1 is out of range"),
        ({"forward": [[1]], "backward_input": [[1]], "backward_weight": [[1]], "fwd": 1}, "fwd: unknown key"),
    ],
)
def test_bad_stage_times_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: dict[str, Any], fault: str
) -> None:
    path = tmp_path / "times.json"
    path.write_text(json.dumps(content))
    assert main(["schedule", "--stage-times", str(path), "--microbatches", "4"]) == 2
    error = capsys.readouterr().err
    assert fault in error
    assert str(path) in error


def test_an_order_that_deadlocks_is_traced_to_its_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.csv").write_text("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n")
    assert main(["one-batch", DEMO, "--set", "plan.schedule=bad.csv"]) == 2
    error = capsys.readouterr().err
    assert "plan.schedule: bad.csv: order of 2 ranks and 2 microbatches deadlocks" in error
    assert "putting F of microbatch 1, chunk 0 before BW of microbatch 0, chunk 0 on rank 0" in error


@pytest.mark.parametrize(("stdout", "encoding"), [("/dev/full", "utf-8"), (None, "ascii")])
def test_stdout_that_is_full_or_not_unicode(stdout: str | None, encoding: str) -> None:
    command = [sys.executable, "-m", "predict", "schedule", *EVEN, "--schedule", "1f1b"]
    with Path(stdout or os.devnull).open("w") as sink:
        done = subprocess.run(
            command,
            stdout=sink if stdout else subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONIOENCODING": encoding},
            check=False,
            cwd=ROOT,
        )
    error = done.stderr.decode()
    if stdout:
        assert done.returncode == 2
        assert error == "error: stdout: No space left on device; make room, or send the result elsewhere\n"
    else:
        assert (done.returncode, error) == (0, "")
        assert b"rank 0 F0??" in done.stdout
