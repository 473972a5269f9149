"""`predict schedule` as its user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from predict.reports import text
from predict.schedules import makespan, names
from sampling.files.places import CONFIGS
from tests.predict.command import Command

DEMO = str(CONFIGS / "runs" / "demo.yml")
EVEN = ["--pp", "4", "--microbatches", "8"]


def schedules(command: Command, *options: str) -> list[dict[str, Any]]:
    content = command.json("schedule", *options)
    assert content["version"] == 1
    return list(content["schedules"])


def test_all_are_compared_and_those_that_do_not_apply_say_why(command: Command) -> None:
    found = schedules(command, *EVEN, "--vpp", "2", "--schedule", "all", "--p2p", "0.1")
    assert sorted(outcome["name"] for outcome in found) == names()
    for outcome in found:
        if outcome["valid"]:
            expected = makespan(outcome["name"], ranks=4, chunks=2, microbatches=8, p2p=0.1, **dict.fromkeys(ONE, 1))
            assert outcome["makespan"] == pytest.approx(expected)
            assert outcome["why_not"] is None
        else:
            assert outcome["makespan"] is None
            assert outcome["why_not"] == "needs one chunk per rank (plan.vpp), not 2"
    valid = [outcome["valid"] for outcome in found]
    assert valid == sorted(valid, reverse=True)


def test_times_from_a_file_are_by_rank_and_chunk(command: Command, tmp_path: Path) -> None:
    tables = {
        "forward": [[1, 2], [3, 4]],
        "backward_input": [[1, 1], [2, 2]],
        "backward_weight": [[0.5, 0.5], [1, 1]],
        "p2p": 0.25,
    }
    path = tmp_path / "times.json"
    path.write_text(json.dumps(tables))
    found = schedules(command, "--stage-times", str(path), "--microbatches", "6", "--schedule", "zbv,v-half")
    for outcome in found:
        assert outcome["makespan"] == makespan(outcome["name"], ranks=2, chunks=2, microbatches=6, **tables)


def test_order_trace_and_plot_are_written_for_the_best(command: Command, tmp_path: Path) -> None:
    files = {
        kind: tmp_path / f"out.{suffix}" for kind, suffix in (("order", "csv"), ("trace", "json"), ("plot", "svg"))
    }
    options = [part for kind, path in files.items() for part in (f"--{kind}", str(path))]
    read = command.run("schedule", *EVEN, "--schedule", "1f1b,zb-h1", *options)
    assert read.err.count("(zb-h1)") == 3
    assert files["order"].read_text().startswith("0F0,0F1,0F2,0F3,0I0,0W0,")
    assert len([e for e in json.loads(files["trace"].read_text())["traceEvents"] if e["ph"] == "X"]) == 4 * 8 * 3
    assert "</svg>" in files["plot"].read_text()
    (again,) = schedules(command, *EVEN, "--schedule", str(files["order"]))
    assert again["makespan"] == 27.0


def test_the_peak_until_w_is_reported_beside_the_account_of_zb_auto(command: Command, tmp_path: Path) -> None:
    """The order of zb-auto, read from a file, holds as much as is stated under its name."""
    path = tmp_path / "zb.csv"
    options = ["--pp", "8", "--microbatches", "32"]
    assert "zb-auto counts 50 % of an activation as let go at B" in command.text(
        "schedule", *options, "--schedule", "zb-auto", "--order", str(path)
    )
    found = {o["name"]: o for o in schedules(command, *options, "--schedule", f"zb-auto,{path}")}
    assert found["zb-auto"]["peak_chunks_until_w"] == found[str(path)]["peak_chunks"]
    assert max(found["zb-auto"]["peak_chunks"]) == 16 < max(found["zb-auto"]["peak_chunks_until_w"])


def test_ties_do_not_make_zb_auto_slower_than_what_it_is_held_against(command: Command) -> None:
    options = ["--pp", "2", "--microbatches", "4", "--memory-limit", "2", "--schedule", "zb-auto,zb-h1"]
    for unit in (1.0, 10.0):
        times = ("forward", "backward-input", "backward-weight")
        scaled = [part for name in times for part in (f"--{name}", str(unit))]
        found = schedules(command, *options, *scaled, "--p2p", str(0.1 * unit))
        assert [outcome["makespan"] for outcome in found] == pytest.approx([13.4 * unit] * 2)


def test_times_by_edge_rule_out_only_the_schedules_with_other_edges(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    path.write_text(json.dumps(dict.fromkeys(ONE, [[1, 1]] * 2) | {"p2p": [0.1, 0.2, 0.3]}))
    found = {o["name"]: o for o in schedules(command, "--stage-times", str(path), "--microbatches", "8")}
    assert found["zbv"]["valid"]
    assert found["dualpipe"]["why_not"] == "has 1 edge, the times have 3; give p2p as one number"


def test_bytes_of_activations_are_shown_where_they_are_given(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    path.write_text(json.dumps(TWO | {"activation_bytes": [[2**30], [5]]}))
    options = ("--stage-times", str(path), "--microbatches", "8", "--schedule", "1f1b")
    (found,) = schedules(command, *options)
    assert found["peak_bytes"] == [2 * 2**30, 5]
    assert "peak bytes" in command.text("schedule", *options)


def test_an_order_file_of_set_lies_in_the_current_folder(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is that of --schedule."""
    monkeypatch.chdir(tmp_path)
    command.run("schedule", "--pp", "2", "--microbatches", "4", "--schedule", "zb-h1", "--order", "zz.csv")
    for options in (("--set", "plan.schedule=zz.csv"), ("--schedule", "zz.csv")):
        (found,) = schedules(command, DEMO, *options)
        assert (found["name"], found["valid"]) == ("zz.csv", True)


@pytest.mark.parametrize("columns", [20, 45, 60, 200])
def test_a_narrow_terminal_loses_columns_not_names(
    command: Command, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setattr(text, "PIPE_WIDTH", columns)
    lines = command.text("schedule", *EVEN, "--schedule", "1f1b,zb-h1").splitlines()
    assert max(map(len, lines)) <= columns
    table = lines[next(at for at, line in enumerate(lines) if "schedule" in line) :]
    assert [line.split()[0] for line in table[:3]] == ["schedule", "zb-h1", "1f1b"]
    assert ("longest span" in table[0]) == (columns == 200)
    assert ("makespan" in table[0]) == (columns >= 45)


# What `predict schedule` says of options, files and counts that it cannot take.


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ([*EVEN, "--forward", "inf"], "--forward: inf is not a time"),
        ([*EVEN, "--schedule", ","], "--schedule: ',': no schedule is named"),
        ([*EVEN, "--trace", "."], "--trace: . is a directory"),
    ],
)
def test_bad_options_are_named(command: Command, options: list[str], fault: str) -> None:
    assert fault in command.refused("schedule", *options)


ONE, TWO = (dict.fromkeys(("forward", "backward_input", "backward_weight"), [[1]] * ranks) for ranks in (1, 2))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({"forward": [[1]], "backward_input": [[1]]}, "backward_weight: missing"),
        (ONE | {"backward_input": [[1], [1]]}, "different ranks × chunks"),
        (ONE | {"forward": [[1], [1, 2]]}, "forward: rows of [1, 2] chunks"),
        (ONE | {"forward": [["a"]]}, "forward[0][0]: 'a' is not a number; give a number of 0 or more"),
        (ONE | {"backward_weight": [[-1]]}, "backward_weight[0][0]: -1 is out of range"),
        (ONE | {"p2p": [1]}, "p2p: a list of 1; give one number\n"),
        (TWO | {"p2p": [1, 1]}, "p2p: a list of 2; give one number, or a list of 1, one for each edge\n"),
        (
            {"forward": 1, "p2p": "slow"},
            "p2p: 'slow' is not a number; give a number of 0 or more: one, or a list of them",
        ),
        ({"forward": 1, "p2p": [0, -1]}, "p2p[1]: -1 is out of range"),
        ({"forward": 1, "activation_bytes": [[-1]]}, "activation_bytes[0][0]: -1 is out of range"),
        (ONE | {"fwd": 1}, "fwd: unknown key"),
    ],
)
def test_bad_stage_times_are_named(command: Command, tmp_path: Path, content: dict[str, Any], fault: str) -> None:
    path = tmp_path / "times.json"
    path.write_text(json.dumps(content))
    error = command.refused("schedule", "--stage-times", str(path), "--microbatches", "4")
    assert fault in error
    assert str(path) in error


def test_an_order_that_deadlocks_is_traced_to_its_file(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.csv").write_text("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n")
    error = command.refused("one-batch", DEMO, "--set", "plan.schedule=bad.csv")
    assert "plan.schedule: bad.csv: order of 2 ranks and 2 microbatches deadlocks" in error
    assert "putting F of microbatch 1, chunk 0 before BW of microbatch 0, chunk 0 on rank 0" in error


def test_a_stdout_that_is_not_unicode_shows_question_marks() -> None:
    """One that is full is a case of tests/sampling/test_command_line.py, whose exit codes are those of `predict` too."""
    command = [sys.executable, "-m", "predict", "schedule", *EVEN, "--schedule", "1f1b"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=environment, check=True, cwd=CONFIGS.parent)
    assert done.stderr == b""
    assert b"rank 0 F0??" in done.stdout
