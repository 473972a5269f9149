"""The calls of runs and searches, for the sampler."""

import json
from pathlib import Path

import pytest

from tests.predict.command import Command

ROOT = Path(__file__).resolve().parents[3]


DEMO = str(ROOT / "configs" / "runs" / "demo.yml")


def test_calls_of_a_run_are_what_the_sampler_reads(tmp_path: Path, command: Command) -> None:
    from sampling.choosing.calls_file import read_calls_file

    path = tmp_path / "calls.json"
    path.write_text(command.text("calls", DEMO))
    (requests,) = read_calls_file(path, "CPU core").values()
    assert "dense_layer" in {request.call.NAME for request in requests}


def test_calls_of_a_search_are_those_of_all_its_plans(command: Command) -> None:
    def calls(*settings: str) -> set[str]:
        options = [each for setting in settings for each in ("--set", setting)]
        found = json.loads(command.text("calls", DEMO, "--set", "plan.schedule=1f1b", *options))
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
    on_h100: str, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    alone = json.loads(command.text("calls", DEMO))
    monkeypatch.setattr("predict.plan_search.needed_calls.detect_hardware", lambda: "cpu")
    captured = command.run("calls", on_h100, DEMO)
    assert json.loads(captured.out) == alone
    assert captured.err == (
        f"{on_h100}: passed over: it is on NVIDIA H100-SXM5-80GB, and these are the calls of runs on CPU core\n"
    )
    assert json.loads(command.text("calls", on_h100, DEMO, "--hardware", "H100"))["hardware"].startswith("NVIDIA H100")
    monkeypatch.setattr("predict.plan_search.needed_calls.detect_hardware", lambda: "a100-80gb")
    assert "this machine is none of CPU core and NVIDIA H100-SXM5-80GB, which the runs are on" in command.refused(
        "calls", on_h100, DEMO
    )
