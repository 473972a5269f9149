"""`predict memory`: what it prints, its JSON, its exit codes and its picture."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from predict import one_batch_memory
from predict.cli import main
from predict.memory.peak import TERMS
from sampling.files.places import CONFIGS
from tests.predict.command import Command

DEMO = str(CONFIGS / "runs" / "demo.yml")
LARGE = str(CONFIGS / "runs" / "llama3-70b-64xh100.yml")
HEAVY = ("--set", "plan.cp=1", "--set", "plan.dp=4")
"""Whole sequences on every rank, of which the expected peak does not fit."""
SEVERAL_CHUNKS = ("interleaved-1f1b", "interleaved-zb", "looped-bfs")


def out(command: Command, *arguments: str) -> str:
    return command.text("memory", *arguments)


def memory_of(command: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(out(command, *arguments, "--json"))
    return content


def test_json_is_stable_and_adds_up(command: Command) -> None:
    content = memory_of(command, LARGE, *HEAVY)
    assert content["version"] == 1
    assert {"ranks", "point_bytes", "upper_bytes", "capacity_bytes", "headroom_bytes", "verdict", "advice"} <= set(
        content
    )
    for rank in content["ranks"]:
        assert {"rank", "peak", "allocated", "reserved", "when", *TERMS} <= set(rank)
        assert rank["peak"] == pytest.approx(sum(rank[term] for term in TERMS))
        assert rank["when"]["start_us"] < rank["when"]["end_us"]
    assert content["point_bytes"] == max(rank["peak"] for rank in content["ranks"])
    assert content["verdict"] == "AT RISK" and 0.05 < content["fits_probability"] < 0.5
    steps = [advice["step_us"] for advice in content["advice"]]
    assert steps and steps == sorted(steps)


def test_the_advised_settings_can_be_given_back(command: Command) -> None:
    first = memory_of(command, LARGE, *HEAVY)["advice"][0]
    again = memory_of(command, LARGE, *HEAVY, *(part for setting in first["settings"] for part in ("--set", setting)))
    assert again["verdict"] == first["verdict"] == "FITS"
    assert again["point_bytes"] == pytest.approx(first["point_bytes"])
    assert again["advice"] == []


def test_best_is_reported_and_advised_where_no_schedule_fits(command: Command) -> None:
    best = (LARGE, "--set", "plan.schedule=best", "--set", "batch.micro=16")
    content = memory_of(command, *best)
    others = {name: memory_of(command, *best, "--set", f"plan.schedule={name}") for name in SEVERAL_CHUNKS}
    assert content["verdict"] == "OOM" and content["advice"]
    assert content["point_bytes"] == min(other["point_bytes"] for other in others.values())
    # one document on stdout: the answer says already that it does not fit
    assert json.loads(command.run("memory", *best, "--check", "--json", code=4).out)["feasible"] is False
    assert one_batch_memory(LARGE, [setting for setting in best[1:] if setting != "--set"]).verdict == "OOM"


def test_a_file_without_a_memory_part_is_refused(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    file.write_text("{}")
    assert "memory: missing; write it with" in command.refused("memory", DEMO, "--load-benchmark", str(file))
    file.write_text('{"memory": {"version": 99}}')
    assert main(["memory", DEMO, "--load-benchmark", str(file)]) == 3


def test_the_picture_has_a_panel_a_rank_and_the_capacity(tmp_path: Path, command: Command) -> None:
    file = tmp_path / "memory.svg"
    assert f"wrote {file}" in command.notes("memory", LARGE, "--timeline", str(file))
    root = ElementTree.fromstring(file.read_text())
    names = {element.get("id") for element in root.iter()}
    assert {f"rank {rank} activations" for rank in range(4)} <= names
    texts = {"".join(element.itertext()).strip() for element in root.iter() if element.tag.endswith("text")}
    assert {"capacity", "working"} <= texts
    assert any(text.endswith("of 79.58 GiB") for text in texts)


@pytest.mark.usefixtures("starts_warm")
def test_a_benchmark_of_this_machine_is_saved_loaded_and_restored(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "counted.json"
    taken = memory_of(command, DEMO, "--mode", "both", "--save-benchmark", str(file))
    loaded = memory_of(command, DEMO, "--load-benchmark", str(file))
    assert taken["mode"] == "both" and loaded["mode"] == "benchmark"
    assert taken["benchmark"] == loaded["benchmark"]
    assert loaded["point_bytes"] == loaded["benchmark"]["point_bytes"]
    assert taken["point_bytes"] == max(rank["peak"] for rank in taken["ranks"])
    # what was counted on this machine: plain torch, whose activations are known to the byte
    assert loaded["benchmark"]["terms"]["activation_correction"] == pytest.approx(1.0, abs=0.1)


def test_changes_of_several_keys_are_not_called_single(command: Command) -> None:
    said = out(command, LARGE, *HEAVY)
    listed = said.partition("Changes that make it fit, cheapest first, those on one line together:")[2]
    assert any(line.count("--set") > 1 for line in listed.splitlines())
    assert "ingle change" not in said
