"""A made trace replayed as itself and under other plans."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from predict import estimate, load
from predict.cli import main
from predict.explain.measured import MeasuredRank, MeasuredStep, read_measured
from predict.explain.pace import paces
from predict.explain.predicted import PredictedStep
from predict.explain.replay import what_if
from sampling.errors import UserError
from sampling.operators.elementwise import Gelu
from sampling.operators.gemm import Gemm
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
    logged_us = 0.8 * slow_step.step_us
    assert what_if(run, run, replace(slow_step, logged_us=logged_us)).replayed.median_us == pytest.approx(
        logged_us, rel=0.01
    )


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
    with pytest.raises(UserError, match="--kernel: pp_bubble: it follows from the plan"):
        what_if(run, run, slow_step, kernels={"pp_bubble": 0.5})


def test_the_command_prints_the_replay(slow_trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", CONFIG, "--trace", str(slow_trace), "--set", "batch.micro=4", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed["step_us"]) == {"traced", "replayed", "models_alone"}
    assert main(["what-if", CONFIG, "--trace", str(slow_trace), "--kernel", "attention"]) == 2
    assert "NAME=FACTOR" in capsys.readouterr().err


def test_a_small_part_of_a_step_sets_no_pace_and_a_heading_without_evidence_goes_at_that_of_all() -> None:
    gemm = Gemm(dtype="fp32", m=8, n=8, k=8)
    gelu = Gelu(dtype="fp32", tokens=8, width=8)
    times = {"gemm": 900.0, "gelu": 1.0}
    predicted = PredictedStep(
        step_us=1000.0,
        headings=times,
        calls={(gemm, "forward"): (1.0, 900.0), (gelu, "forward"): (1.0, 1.0)},
        messages_us={},
        doubts=dict.fromkeys(times, 0.1),
    )
    rank = MeasuredRank(
        rank=0,
        steps=1,
        step_us=1200.0,
        headings={"gemm": 1100.0, "gelu": 8.0},
        kernels_us=1108.0,
        matched_us=1108.0,
        calls={(gemm, "forward"): (1.0, 1100.0)},
        operators={},
        messages={},
        longest_idle_us=0.0,
    )
    found = paces(predicted, MeasuredStep(ranks=(rank,), rule="", on_device=False))
    assert found.headings["gemm"] == pytest.approx(1.2, rel=0.05)
    assert found.headings["gelu"] == pytest.approx(found.others, rel=0.1)
    assert found.others == pytest.approx(1108 / 901, rel=0.02)
