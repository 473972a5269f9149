"""A made trace replayed as itself and under other plans."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from predict import estimate, load
from predict.cli import main
from predict.explain.measured import MeasuredStep, read_measured
from predict.explain.replay import what_if
from sampling.errors import UserError
from tests.predict.explain.made_traces import CONFIG, prediction, step_events, write


@pytest.fixture(scope="module")
def slow_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step whose operators take twice, and attention four times, what is predicted."""
    of = prediction()
    events = step_events(of, compute=2.0, attention=2.0)
    return write(tmp_path_factory.mktemp("slow"), [events, events])


def test_the_traced_plan_is_replayed_as_it_was(slow_step: MeasuredStep) -> None:
    run = load(CONFIG)
    replay = what_if(run, run, slow_step)
    assert replay.replayed.median_us == pytest.approx(replay.traced.step_us, rel=0.01)
    assert replay.replayed_share > 0.8
    assert what_if(run, run, replace(slow_step, logged_us=5e5)).replayed.median_us == pytest.approx(5e5, rel=0.01)


@pytest.fixture(scope="module")
def slow_step(slow_trace: Path) -> MeasuredStep:
    return read_measured(slow_trace, load(CONFIG))


@pytest.mark.parametrize("change", ["batch.global=32", "plan.recompute=full", "batch.micro=4"])
def test_another_plan_goes_at_the_pace_of_the_trace(slow_step: MeasuredStep, change: str) -> None:
    run, asked = load(CONFIG), load(CONFIG, [change])
    replay = what_if(run, asked, slow_step)
    pace = replay.traced.step_us / estimate(run).median_us
    assert pace > 1.4
    assert replay.replayed.median_us / replay.modelled.median_us == pytest.approx(pace, rel=0.15)


def test_a_faster_kernel_and_faster_links_shorten_the_step(slow_step: MeasuredStep) -> None:
    run = load(CONFIG)
    whole, attention, links = (
        what_if(run, run, slow_step, **asked).replayed.breakdown_us  # type: ignore[arg-type]
        for asked in ({}, {"kernels": {"attention": 0.5}}, {"link_speed": 2.0})
    )
    assert attention["attention"] == pytest.approx(whole["attention"] / 2, rel=0.1)
    assert links["dp_exposed"] == pytest.approx(whole["dp_exposed"] / 2, rel=0.1)
    with pytest.raises(UserError, match="--kernel: atention: not in the ledger"):
        what_if(run, run, slow_step, kernels={"atention": 0.5})


def test_the_command_prints_the_replay(slow_trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", CONFIG, "--trace", str(slow_trace), "--set", "batch.micro=4", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed["step_us"]) == {"traced", "replayed", "models_alone"}
    assert main(["what-if", CONFIG, "--trace", str(slow_trace), "--kernel", "attention"]) == 2
    assert "NAME=FACTOR" in capsys.readouterr().err
