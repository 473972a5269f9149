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
from tests.predict.cli.scheduled import DEMO, EVEN, ROOT, schedules


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ([], "nothing to time; give a CONFIG, or --microbatches with --pp or with --stage-times"),
        (["--pp", "8"], "--microbatches: missing"),
        (["--microbatches", "8"], "nothing to time"),
        ([*EVEN, "--schedule", "README.md"], "--schedule: 'README.md' is not a schedule; give all, some of 1f1b"),
        ([*EVEN, "--schedule", "zbh1"], "'zbh1' is not a schedule; did you mean 'zb-h1'"),
        ([*EVEN, "--schedule", ","], "no schedule is named"),
        (["--pp", "0", "--microbatches", "8"], "--pp: 0 is not a positive number"),
        ([*EVEN, "--memory-limit", "0"], "--memory-limit: 0 is not a positive number"),
        ([*EVEN, "--forward", "-1"], "--forward: -1.0 is not a time; give a number from 0 to 1e+100"),
        ([*EVEN, "--forward", "nan"], "--forward: nan is not a time"),
        ([*EVEN, "--forward", "inf"], "--forward: inf is not a time"),
        ([*EVEN, "--p2p", "1e308"], "--p2p: 1e+308 is not a time"),
        ([*EVEN, "--overlap-gain", "nan"], "--overlap-gain: nan is not a share"),
        ([*EVEN, "--order", "a.json", "--trace", "a.json"], "two of them name the same file"),
        (
            [*EVEN, "--trace", "/proc/none/trace.json", "--schedule", "1f1b"],
            "--trace: /proc/none/trace.json: there is no directory /proc/none",
        ),
        (
            [*EVEN, "--vpp", "2", "--schedule", "dualpipev", "--overlap-gain", "2"],
            "--overlap-gain: 2.0 is not a share; give a number from 0 to 1",
        ),
        ([*EVEN, "--set", "plan.pp=2"], "--set changes a config"),
        ([*EVEN, "--plot", "a.pdf", "--schedule", "1f1b"], "a.pdf"),
        ([*EVEN, "--order", "a.txt", "--schedule", "1f1b"], r"a.txt"),
        ([*EVEN, "--schedule", ""], "--schedule: '': no schedule is named"),
        ([*EVEN, "--trace", ""], "--trace: the path is empty"),
        ([*EVEN, "--plot", ""], "--plot: the path is empty"),
        ([*EVEN, "--order", ""], "--order: the path is empty"),
        (["--stage-times", "", "--microbatches", "4"], "--stage-times: the path is empty"),
        ([""], "CONFIG: the path is empty"),
        ([*EVEN, "--trace", "/proc"], "--trace: /proc is a directory"),
        ([*EVEN, "--plot", "missing/a.svg"], "--plot: missing/a.svg: there is no directory missing; make it"),
        ([*EVEN, "--trace", "/proc/self/t.json"], "--trace: /proc/self/t.json cannot be written"),
        (["--stage-times", "missing.json", "--microbatches", "4"], "missing.json"),
        (["--stage-times", "missing.json", "--microbatches", "4", "--pp", "3"], "--pp: already in --stage-times"),
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


def test_nothing_that_runs_ends_with_4_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = schedules(capsys, *EVEN, "--schedule", "zbv", code=4)
    assert found["why_not"] == "needs two chunks per rank (plan.vpp), not 1"
    assert main(["schedule", *EVEN, "--schedule", "1f1b", "--memory-limit", "1"]) == 4
    assert "1f1b holds 4 chunk activations, more than the limit of 1" in capsys.readouterr().err


def test_one_file_that_cannot_be_written_does_not_keep_the_others_back(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    order, plot = tmp_path / "x.csv", tmp_path / "x.svg"
    options = ["--pp", "4", "--vpp", "2", "--microbatches", "8", "--schedule", "dualpipe"]
    assert main(["schedule", *options, "--order", str(order), "--plot", str(plot)]) == 2
    said = capsys.readouterr()
    assert plot.is_file()
    assert not order.exists()
    assert f"--order: {order}: torch's CSV numbers the stages of one model" in said.err
    assert "dualpipe" in said.out


def test_layers_are_counted_for_the_schedules_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    few = [DEMO, "--set", "plan.vpp=2", "--set", "model.num_hidden_layers=3"]
    (found,) = schedules(capsys, *few, "--schedule", "dualpipe")
    assert found["valid"]
    both = {o["name"]: o for o in schedules(capsys, *few, "--schedule", "zbv,dualpipe")}
    assert both["zbv"]["why_not"] == "makes 4 stages, more than the model's 3 layers"
    assert main(["schedule", *few, "--set", "plan.schedule=zbv"]) == 2
    assert "makes 4 stages, more than the 3 layers" in capsys.readouterr().err


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
