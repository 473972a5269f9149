"""A plan that does not fit is said to not fit before anything else, and --check gives 4, in every command that predicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from predict import one_batch
from predict.cli import main
from predict.reports.memory import headlines
from sampling.files.places import CONFIGS

LARGE = str(CONFIGS / "runs" / "llama3-70b-64xh100.yml")
HEAVY = ("--set", "plan.cp=1", "--set", "plan.dp=4")
TOO_LARGE = ("--set", "cluster.profile=nowhere", "--set", "batch.seq_len=4000000")
"""Sequences whose activations exceed any machine's memory."""
DEMO = str(CONFIGS / "runs" / "demo.yml")
COMMANDS = ("one-batch", "memory", "schedule")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_headline_says_first_that_it_does_not_fit(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, LARGE, *HEAVY]) == 0
    assert capsys.readouterr().out.startswith("DOES NOT FIT: llama3-70b-64xh100 needs ")
    assert main([command, LARGE]) == 0
    assert "DOES NOT FIT" not in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_json_says_it_too(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for settings, feasible in ((HEAVY, False), ((), True)):
        assert main([command, LARGE, *settings, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["feasible"] is feasible


@pytest.mark.parametrize("command", COMMANDS)
def test_check_gives_4_after_the_result(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, LARGE, *HEAVY, "--check"]) == 4
    captured = capsys.readouterr()
    assert captured.out.startswith("DOES NOT FIT")
    assert captured.err.startswith("error: --check: it does not fit")
    assert main([command, LARGE, "--check"]) == 0


def test_best_is_the_schedule_with_the_smallest_peak_where_none_fits(capsys: pytest.CaptureFixture[str]) -> None:
    best = (LARGE, "--set", "plan.schedule=best", "--set", "batch.micro=16")
    for command in COMMANDS:
        assert main([command, *best]) == 0
        assert capsys.readouterr().out.startswith("DOES NOT FIT")
        assert main([command, *best, "--check"]) == 4
        capsys.readouterr()


def test_files_of_a_schedule_that_does_not_fit_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order = tmp_path / "order.csv"
    assert main(["schedule", LARGE, *HEAVY, "--order", str(order)]) == 0
    assert order.is_file()
    assert "wrote" in capsys.readouterr().err


def test_validate_checks_before_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", DEMO, *TOO_LARGE, "--check"]) == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "error: cluster.hardware: demo needs " in captured.err
    assert main(["validate", "samples", "--check"]) == 2
    assert "--check: does not go with `predict validate samples`" in capsys.readouterr().err


def test_the_smallest_cluster_of_the_answer_is_not_one_that_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["one-batch", LARGE, *HEAVY]) == 0
    text = capsys.readouterr().out
    prediction = one_batch(LARGE, [setting for setting in HEAVY if setting != "--set"])
    smallest = prediction.smallest_cluster
    assert not prediction.feasible
    assert smallest is not None
    assert smallest.gpus > prediction.run.cluster.world_size > prediction.one_replica.gpus
    assert (
        f"smallest    {smallest.gpus} GPUs on {smallest.nodes} nodes for this tp, pp and cp: dp {smallest.dp}, fewer replicas do not"
        in text
    )
    assert "fits with   --set " in text


def test_no_number_of_nodes_is_said_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["one-batch", LARGE, "--set", "batch.seq_len=131072", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["smallest_cluster"] is None
    assert main(["one-batch", LARGE, "--set", "batch.seq_len=131072"]) == 0
    assert "smallest    no number of nodes makes this plan fit" in capsys.readouterr().out


def test_names_in_the_headline_are_text() -> None:
    assert headlines(["[red]x[/] needs more", ""]) == ["[bold red]DOES NOT FIT: \\[red]x\\[/] needs more[/]"]


def test_a_plan_that_its_framework_does_not_run_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    too_few = ["one-batch", str(CONFIGS / "runs" / "demo.yml"), "--set", "batch.global=2"]
    assert main(too_few) == 0
    assert "1f1b needs at least plan.pp = 2 microbatches; this run has 1" in capsys.readouterr().out
    assert main([*too_few, "--json"]) == 0
    assert "needs at least" in json.loads(capsys.readouterr().out)["refused_by_runtime"]
    assert main([*too_few, "--set", "execution.framework=megatron-core", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["refused_by_runtime"] == ""
