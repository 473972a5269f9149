"""A plan that does not fit is said to not fit before anything else, and --check gives 4, in every command that predicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from predict import one_batch
from predict.cli import main
from predict.reports.memory import headlines
from sampling.files.places import CONFIGS

LARGE = str(CONFIGS / "runs" / "llama3-70b-64xh100.yml")
HEAVY = ("--set", "plan.cp=1", "--set", "plan.dp=4")


def test_files_of_a_schedule_that_does_not_fit_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order = tmp_path / "order.csv"
    assert main(["schedule", LARGE, *HEAVY, "--order", str(order)]) == 0
    assert order.is_file()
    assert "wrote" in capsys.readouterr().err


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


def test_names_in_the_headline_are_text() -> None:
    assert headlines(["[red]x[/] needs more", ""]) == ["[bold red]DOES NOT FIT: \\[red]x\\[/] needs more[/]"]
