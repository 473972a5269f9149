"""The command as its user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from predict import one_batch, one_batch_predict
from predict.cli import main
from sampling.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[3]
DEMO = str(ROOT / "configs" / "runs" / "demo.yml")
UNSAMPLED = ["--set", "cluster.profile=nowhere"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures("on_the_shipped_cpu")
def test_the_demo_is_answered_from_the_shipped_samples(capsys: pytest.CaptureFixture[str]) -> None:
    result = json.loads(printed(capsys, "one-batch", DEMO, "--json", "--require-measured"))
    assert result["version"] == 2
    assert set(result) >= {
        "step_time_us",
        "tokens_per_second",
        "tokens_per_second_per_gpu",
        "mfu",
        "bubble_fraction",
        "breakdown_us",
        "sources",
        "stages",
        "provenance",
    }
    step = result["step_time_us"]
    assert step["low"] < step["median"] < step["high"]
    assert result["sources"]["measured"] == pytest.approx(1)
    assert result["breakdown_us"] == pytest.approx(one_batch(DEMO).breakdown_us)
    assert result["provenance"]["samples"]["provenance"]["device"]["cores"] >= 1
    assert len(result["stages"]) == 2
    assert {"forward_us", "backward_us"} <= set(result["stages"][0])


def test_text_and_json_and_python_agree(capsys: pytest.CaptureFixture[str]) -> None:
    median_us = json.loads(printed(capsys, "one-batch", DEMO, "--json"))["step_time_us"]["median"]
    assert one_batch_predict(DEMO) == one_batch(DEMO).step_time.median_us == median_us
    text = printed(capsys, "one-batch", DEMO)
    assert f"{median_us / 1e3:.3g} ms" in text
    assert "samples: epyc-2-cores, taken on AMD EPYC" in text


def test_without_samples_the_first_line_says_so_and_the_answer_is_analytic(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "one-batch", DEMO, *UNSAMPLED)
    assert text.splitlines()[0].startswith("No samples for profile 'nowhere' (known: ")
    result = json.loads(printed(capsys, "one-batch", DEMO, *UNSAMPLED, "--json"))
    assert result["sources"]["analytic"] == pytest.approx(1)
    assert result["provenance"]["samples"] is None


def test_what_rounds_to_nothing_has_no_sign_and_no_row(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "one-batch", str(ROOT / "configs" / "runs" / "this-machine" / "one-process.yml"))
    assert "bubble 0.0%" in text
    assert "-0.0%" not in text
    assert "pp_bubble" not in text


def test_require_measured_turns_that_into_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["one-batch", DEMO, *UNSAMPLED, "--require-measured"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "make sample PROFILE=nowhere" in captured.err


def test_overrides_change_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    changed = ["--set", "plan.pp=1", "--set", "plan.tp=2"]
    assert "tp 2" in printed(capsys, "one-batch", DEMO, *changed)


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["one-batch", "none.yml"], ["none.yml", "no such file"]),
        (["one-batch", DEMO, "--set", "plan.tp=3"], ["plan", "6"]),
        (["one-batch", DEMO, "--set", "plan.tpp=3"], ["did you mean 'tp'"]),
        (["calls", "none.yml"], ["none.yml"]),
        (["calls", DEMO, "--output", "/nonexistent/calls.json"], ["--output", "/nonexistent/calls.json"]),
        (["calls", DEMO, "--output", "/"], ["--output", "directory"]),
        (["validate", "none.yml"], ["none.yml"]),
        (
            ["validate", "this-machin"],
            ["this-machine, this-gpu, samples, published, memory", "did you mean 'this-machine'"],
        ),
        (["validate", "this-machine", DEMO], ["this-machine", "goes alone"]),
        (
            ["one-batch", DEMO, "--set", "model=configs/models/llama3-8b.json"],
            ["count from the config's folder", "--set model=../models/llama3-8b.json"],
        ),
        (["measure", DEMO, "--steps", "0"], ["--steps"]),
        (["one-batch", DEMO, "--data", "nowhere"], ["--data: 'nowhere' is not a folder"]),
        (["validate", "this-machine", "--rounds", "-1"], ["--rounds"]),
        (["validate", "samples", "--measurements", "nowhere"], ["--measurements: nowhere"]),
        (["one-batch", DEMO, "--benchmark", "nowhere"], ["--benchmark: nowhere: there is no such file"]),
        (["one-batch", DEMO, "--calibration", "nowhere"], ["--calibration: nowhere: there is no such file"]),
        (["memory", DEMO, "--load-benchmark", "nowhere"], ["--load-benchmark: nowhere: there is no such file"]),
        (
            ["schedule", "--stage-times", "nowhere", "--microbatches", "2"],
            ["--stage-times: nowhere: there is no such file"],
        ),
        (["import-config", "nowhere.toml", "nowhere.sh"], ["nowhere.toml: there is no", "\nnowhere.sh: there is no"]),
        (["search", DEMO, "--set", "batch.micro=1,2,4"], ["batch.micro: '1,2,4'", "are written [1, 2, 4]"]),
        (
            ["one-batch", "configs/searches/llama3-70b-64xh100.yml"],
            ["batch.micro: missing", "`predict search` chooses it"],
        ),
        (["one-batch", DEMO, "--set", "batch.micro=1..4"], ["several values, which `predict search` takes"]),
        (["days", DEMO, "--tokens", "-2T"], ["--tokens: -2T is below 0"]),
        (["calibrate", DEMO, "--measured", "-3s"], ["--measured: -3s is below 0"]),
        (["explain", DEMO, "--trace", "nowhere"], ["--trace: no file or folder nowhere"]),
        (
            ["sweep", DEMO, "--vary", "plan.tp=3"],
            ["--vary: the only combination, plan.tp=3, cannot run:\n", "\n--vary: plan.tp: 3 does not divide"],
        ),
    ],
)
def test_bad_input_is_exit_code_2_with_its_place(
    arguments: list[str], fragments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    for fragment in fragments:
        assert fragment in captured.err


def test_calls_of_a_run_are_what_the_sampler_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sampling.choosing.calls_file import read_calls_file

    path = tmp_path / "calls.json"
    path.write_text(printed(capsys, "calls", DEMO))
    (requests,) = read_calls_file(path, "CPU core").values()
    assert "dense_layer" in {request.call.NAME for request in requests}


def test_a_mistyped_profile_is_told_first_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(printed(capsys, "one-batch", DEMO, "--set", "cluster.profile=this-machne").split())
    assert text.startswith(
        "No samples for profile 'this-machne'; did you mean 'this-machine'? sample it with `make sample"
    )
    text = " ".join(printed(capsys, "one-batch", DEMO, "--set", "cluster.profile=zzz").split())
    assert text.startswith("No samples for profile 'zzz' (known: ")
    assert "epyc-2-cores" in text.partition(")")[0]


def test_calls_take_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "calls", DEMO, "--set", "batch.micro=1") != printed(capsys, "calls", DEMO)


def test_calls_of_a_search_are_those_of_all_its_plans(capsys: pytest.CaptureFixture[str]) -> None:
    def calls(*settings: str) -> set[str]:
        options = [each for setting in settings for each in ("--set", setting)]
        found = json.loads(printed(capsys, "calls", DEMO, "--set", "plan.schedule=1f1b", *options))
        return {json.dumps(call) for call in found["calls"]}

    of_search = calls("batch.micro=[1, 2]", "plan.pp=1..2", "plan.dp=auto")
    assert of_search == calls("batch.micro=1") | calls("batch.micro=2") | calls(
        "batch.micro=1", "plan.pp=1", "plan.dp=2"
    ) | calls("plan.pp=1", "plan.dp=2")


@pytest.fixture
def on_h100(tmp_path: Path) -> str:
    """The demo's run on another device."""
    text = Path(DEMO).read_text().replace("../", f"{ROOT}/configs/")
    line = next(line for line in text.splitlines() if line.startswith("cluster:"))
    other = tmp_path / "h100.yml"
    other.write_text(text.replace(line, "cluster: {hardware: h100-sxm, nodes: 1, gpus_per_node: 2, profile: none}"))
    return str(other)


def test_calls_are_those_of_one_hardware_and_other_runs_are_named(
    on_h100: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = json.loads(printed(capsys, "calls", DEMO))
    monkeypatch.setattr("sampling.hardware.this_device.detect_hardware", lambda: "cpu")
    assert main(["calls", on_h100, DEMO]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == alone
    assert captured.err == (
        f"{on_h100}: passed over: it is on NVIDIA H100-SXM5-80GB, and these are the calls of runs on CPU core\n"
    )
    assert json.loads(printed(capsys, "calls", on_h100, DEMO, "--hardware", "H100"))["hardware"].startswith(
        "NVIDIA H100"
    )
    monkeypatch.setattr("sampling.hardware.this_device.detect_hardware", lambda: "a100-80gb")
    assert main(["calls", on_h100, DEMO]) == 2
    assert (
        "this machine is none of CPU core and NVIDIA H100-SXM5-80GB, which the runs are on" in capsys.readouterr().err
    )


def test_calls_of_a_glob_pass_over_what_is_no_run_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages = str(ROOT / "docs" / "examples" / "stages.json")
    assert main(["calls", DEMO, stages, str(ROOT / "README.md"), str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["hardware"] == "CPU core"
    assert [line.partition(": passed over")[0] for line in captured.err.splitlines()] == [
        stages,
        str(ROOT / "README.md"),
        str(tmp_path),
    ]
    assert main(["calls", stages, str(ROOT / "README.md")]) == 2
    assert "none is a run config" in capsys.readouterr().err
    broken = tmp_path / "broken.yml"
    broken.write_text(Path(DEMO).read_text().replace("batch:", "bach:"))
    assert main(["calls", DEMO, str(broken)]) == 2
    assert "did you mean 'batch'?" in capsys.readouterr().err


def test_the_schema_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    schema = json.loads(printed(capsys, "schema"))
    assert set(schema["properties"]) >= {"model", "cluster", "plan", "batch", "precision"}


@pytest.mark.parametrize("command", [[], ["one-batch"], ["calls"], ["measure"], ["validate"], ["schema"]])
def test_help_says_how_to_use_it(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--help"])
    assert stopped.value.code == 0
    assert "usage: predict" in capsys.readouterr().out


def test_predicting_loads_no_library_of_an_extra() -> None:
    program = (
        "import sys; from predict.cli import main; main(['one-batch', sys.argv[1], '--json']);"
        "print([name for name in sys.argv[2].split() if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, DEMO, " ".join(EXTRAS)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m predict one-batch {DEMO} --json | head -c 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_colour_is_left_out_of_pipes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "predict", "one-batch", DEMO], capture_output=True, text=True, check=True
    )
    assert "\x1b[" not in done.stdout


@pytest.mark.parametrize(
    ("settings", "code", "fault"),
    [
        (["cluster.hardware=h100-sxm"], 3, "holds samples of CPU core, not of NVIDIA H100"),
        (["plan.dp=2", "cluster.gpus_per_node=4"], 2, "4 ranks need a core each, and a machine has 2;"),
        (["cluster.cores=1"], 2, "2 ranks need a core each, and a machine has 1;"),
        (["precision=fp8"], 2, "fp8 asks for fp8 products, which execution.framework torch does not model"),
    ],
)
def test_what_the_samples_say_nothing_of_is_refused(
    capsys: pytest.CaptureFixture[str], settings: list[str], code: int, fault: str
) -> None:
    overrides = [part for setting in settings for part in ("--set", setting)]
    assert main(["one-batch", DEMO, *overrides]) == code
    assert fault in capsys.readouterr().err


def test_a_profile_that_covers_nothing_is_said_to(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "one-batch", DEMO, "--set", "cluster.cores=64")
    assert text.startswith("No samples for profile 'this-machine' cover this run")
    assert "taken on" not in text


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["one-bach"], "did you mean 'one-batch'?"),
        (["one-batch", "x.yml", "--jsn"], "did you mean '--json'?"),
        (["one-batch", "x.yml", "--profiling-mode", "simulat"], "did you mean 'simulate'?"),
    ],
)
def test_a_misspelt_command_or_option_is_named(
    arguments: list[str], near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert near in capsys.readouterr().err
