"""`predict schedule` as its user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from predict.cli import main
from predict.schedules import makespan, names

EVEN = ["--pp", "4", "--microbatches", "8"]


def schedules(capsys: pytest.CaptureFixture[str], *options: str, code: int = 0) -> list[dict[str, Any]]:
    assert main(["schedule", *options, "--json"]) == code
    content = json.loads(capsys.readouterr().out)
    assert content["version"] == 1
    return list(content["schedules"])


def test_json_holds_what_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = schedules(capsys, *EVEN, "--schedule", "zb-h2")
    assert found == {
        "name": "zb-h2",
        "makespan": 27.0,
        "span": 24.0,
        "bubble_fraction": pytest.approx(1 / 9),
        "span_bubble_fraction": 0.0,
        "peak_chunks": [7, 7, 7, 7],
        "copies": 1,
        "cost": 27.0,
        "valid": True,
        "why_not": None,
    }


def test_all_are_compared_and_those_that_do_not_apply_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    found = schedules(capsys, *EVEN, "--vpp", "2", "--schedule", "all", "--p2p", "0.1")
    assert sorted(outcome["name"] for outcome in found) == names()
    for outcome in found:
        if outcome["valid"]:
            expected = makespan(
                outcome["name"],
                ranks=4,
                chunks=2,
                microbatches=8,
                forward=1,
                backward_input=1,
                backward_weight=1,
                p2p=0.1,
            )
            assert outcome["makespan"] == pytest.approx(expected)
            assert outcome["why_not"] is None
        else:
            assert outcome["makespan"] is None
            assert outcome["why_not"] == "has one chunk a rank, not 2"
    valid = [outcome["valid"] for outcome in found]
    assert valid == sorted(valid, reverse=True)


def test_the_memory_limit_rules_schedules_out_and_bounds_the_solved_ones(capsys: pytest.CaptureFixture[str]) -> None:
    found = {o["name"]: o for o in schedules(capsys, *EVEN, "--schedule", "zb-h2,zb-auto,zb-h1", "--memory-limit", "4")}
    assert not found["zb-h2"]["valid"]
    assert found["zb-h2"]["why_not"] == "holds 7 chunk activations, more than the limit of 4"
    assert max(found["zb-auto"]["peak_chunks"]) <= 4
    assert found["zb-h1"]["valid"]


def test_two_copies_of_the_model_count_double(capsys: pytest.CaptureFixture[str]) -> None:
    """DualPipe's chunk is twice as large a share of the model, so its shorter makespan does not come first."""
    found = schedules(capsys, *EVEN, "--vpp", "2", "--schedule", "dualpipe,zbv")
    assert [outcome["name"] for outcome in found] == ["zbv", "dualpipe"]
    assert found[1]["makespan"] < found[0]["makespan"] < found[1]["cost"] == 2 * found[1]["makespan"]
    limited = {
        o["name"]: o
        for o in schedules(capsys, *EVEN, "--vpp", "2", "--memory-limit", "8", "--schedule", "dualpipe,zbv")
    }
    assert limited["zbv"]["valid"]
    assert limited["dualpipe"]["why_not"] == "holds 5 chunk activations of 2 × the size, more than the limit of 8"


def test_times_from_a_file_are_by_rank_and_chunk(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tables = {
        "forward": [[1, 2], [3, 4]],
        "backward_input": [[1, 1], [2, 2]],
        "backward_weight": [[0.5, 0.5], [1, 1]],
        "p2p": 0.25,
    }
    path = tmp_path / "times.json"
    path.write_text(json.dumps(tables))
    found = schedules(capsys, "--stage-times", str(path), "--microbatches", "6", "--schedule", "zbv,v-half")
    for outcome in found:
        assert outcome["makespan"] == makespan(outcome["name"], ranks=2, chunks=2, microbatches=6, **tables)


def test_order_trace_and_plot_are_written_for_the_best(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = {
        kind: tmp_path / f"out.{suffix}" for kind, suffix in (("order", "csv"), ("trace", "json"), ("plot", "svg"))
    }
    options = [part for kind, path in files.items() for part in (f"--{kind}", str(path))]
    assert main(["schedule", *EVEN, "--schedule", "1f1b,zb-h1", *options]) == 0
    read = capsys.readouterr()
    assert read.err.count("(zb-h1)") == 3
    assert files["order"].read_text().startswith("0F0,0F1,0F2,0F3,0I0,0W0,")
    assert len([e for e in json.loads(files["trace"].read_text())["traceEvents"] if e["ph"] == "X"]) == 4 * 8 * 3
    assert "</svg>" in files["plot"].read_text()
    (again,) = schedules(capsys, *EVEN, "--schedule", str(files["order"]))
    assert again["makespan"] == 27.0


def test_order_as_json_is_as_documented(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    assert main(["schedule", "--pp", "2", "--microbatches", "1", "--schedule", "1f1b", "--order", str(path)]) == 0
    assert json.loads(path.read_text())["per_rank"] == [[["F", 0, 0], ["BW", 0, 0]]] * 2


def test_the_picture_fits_and_names_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", *EVEN]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 140
    assert [line.split()[0] for line in lines if line.startswith("rank ")] == ["rank"] * 4


def test_blocking_sends_cost_more(capsys: pytest.CaptureFixture[str]) -> None:
    options = (*EVEN, "--schedule", "1f1b", "--p2p", "0.2")
    (delay,), (blocking,) = schedules(capsys, *options), schedules(capsys, *options, "--blocking")
    assert blocking["makespan"] > delay["makespan"]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ([], "--microbatches: missing"),
        (["--microbatches", "8"], "nothing to time"),
        ([*EVEN, "--schedule", "zbh1"], "'zbh1' is not a schedule; did you mean 'zb-h1'"),
        ([*EVEN, "--schedule", ","], "no schedule is named"),
        (["--pp", "0", "--microbatches", "8"], "--pp: 0 is not a positive number"),
        ([*EVEN, "--memory-limit", "0"], "--memory-limit: 0 is not a positive number"),
        ([*EVEN, "--forward", "-1"], "forward: -1.0 is no time"),
        ([*EVEN, "--forward", "nan"], "forward: nan is no time"),
        ([*EVEN, "--forward", "inf"], "forward: inf is no time"),
        ([*EVEN, "--p2p", "1e308"], "p2p: 1e+308 is no time"),
        ([*EVEN, "--overlap-gain", "nan"], "overlap_gain: nan is no share"),
        ([*EVEN, "--order", "a.json", "--trace", "a.json"], "two of them name the same file"),
        ([*EVEN, "--trace", "/proc/none/trace.json", "--schedule", "1f1b"], "/proc/none/trace.json: cannot be written"),
        ([*EVEN, "--vpp", "2", "--schedule", "dualpipev", "--overlap-gain", "2"], "overlap_gain: 2.0 is no share"),
        ([*EVEN, "--set", "plan.pp=2"], "--set changes a config"),
        ([*EVEN, "--plot", "a.pdf", "--schedule", "1f1b"], "a.pdf"),
        ([*EVEN, "--order", "a.txt", "--schedule", "1f1b"], r"a.txt"),
        (["--stage-times", "missing.json", "--microbatches", "4"], "missing.json"),
        (["--stage-times", "missing.json", "--microbatches", "4", "--pp", "3"], "--pp: already told by"),
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
        ({"forward": [["a"]], "backward_input": [[1]], "backward_weight": [[1]]}, "forward: 'a' is no time"),
        ({"forward": [[1]], "backward_input": [[1]], "backward_weight": [[-1]]}, "backward_weight: -1 is no time"),
        ({"forward": [[1]], "backward_input": [[1]], "backward_weight": [[1]], "p2p": [1]}, "p2p: "),
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
    assert found["why_not"] == "has two chunks a rank, not 1"
    assert main(["schedule", *EVEN, "--schedule", "1f1b", "--memory-limit", "1"]) == 4
    assert "1f1b holds 4 chunk activations, more than the limit of 1" in capsys.readouterr().err


def test_the_schedule_asked_for_takes_the_place_of_the_config_s(capsys: pytest.CaptureFixture[str]) -> None:
    config = str(Path(__file__).resolve().parents[2] / "configs" / "runs" / "demo.yml")
    found = schedules(capsys, config, "--set", "plan.vpp=2", "--schedule", "all")
    assert found[0]["valid"]
    assert main(["schedule", config, "--set", "plan.vpp=2"]) == 2
    error = capsys.readouterr().err
    assert "1f1b has one chunk a rank, not 2; set plan.vpp to 1, or take another schedule: dualpipe, dualpipev" in error


def test_a_step_of_no_time_has_a_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nothing = ["--forward", "0", "--backward-input", "0", "--backward-weight", "0"]
    assert main(["schedule", *EVEN, *nothing, "--schedule", "1f1b", "--plot", str(tmp_path / "none.svg")]) == 0
    assert "makespan 0<" in (tmp_path / "none.svg").read_text()
