"""Commands on serving configs: what they print, draw and refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import predict
from predict.cli.serving import rates_of
from predict.reports.serving import answer_json
from predict.reports.serving_step import most_certain
from predict.serving import StepBatch, step_time
from predict.serving.coefficients import coefficients_json, shipped_coefficients
from predict.serving.config import load_serving
from predict.serving.step_model import MODELS
from predict.serving.stepper import Stepper
from sampling.errors import UserError
from tests.predict.command import Command
from tests.predict.serving.servers import CONFIG, SHORT


def test_of_several_models_the_most_certain_is_named(tmp_path: Path, command: Command) -> None:
    """The one with the narrowest interval on the server; what is only assumed does not count."""
    server = load_serving(CONFIG).server
    shipped = [Stepper(server, shipped_coefficients(name)) for name in MODELS]
    kernels, formula, published = shipped
    sure, assumed = (
        Stepper(server, replace(one.coefficients, half_width=width))
        for one, width in ((formula, 0.01), (published, 0.001))
    )
    own = tmp_path / "own.json"
    own.write_text(json.dumps(coefficients_json(replace(formula.coefficients, source="my own"))))
    elsewhere = Stepper(server, replace(kernels.coefficients, architectures=("ampere",)))
    assert most_certain(shipped) is kernels
    assert most_certain([kernels, sure, assumed]) is sure
    assert most_certain([elsewhere, formula]) is formula
    printed = " ".join(command.text("serving-step", str(CONFIG), "--decodes", "8x500", "--model", "all").split())
    assert "memory traffic (β3)" in printed
    assert "rely on kernels: of the fitted models it has the narrowest interval, up to 4.7 % above the step" in printed
    assert "published 35.0 %, assumed" in printed
    step = ["serving-step", str(CONFIG), "--decodes", "8x500", "--coefficients", str(own)]
    for names in ([], ["--model", "all"]):
        assert "coefficients: my own" in command.text(*step, *names)
    batch = StepBatch(decodes=(500,) * 8)
    assert step_time(batch, CONFIG, coefficients=own) == step_time(batch, CONFIG, model="formula")


def test_python_answers_as_the_command_does(command: Command) -> None:
    found = predict.serving_answer(
        CONFIG, SHORT, find_capacity=True, rates=[2.0], slo=["ttft_p90=1s"], price="2/gpu-h", model="formula"
    )
    asked = ["--find-capacity", "--sweep", "rate=2", "--slo", "ttft_p90=1s", "--price", "2/gpu-h", "--model", "formula"]
    settings = [part for each in SHORT for part in ("--set", each)]
    assert command.json("serving", str(CONFIG), *asked, *settings) == json.loads(json.dumps(answer_json(found)))
    with pytest.raises(UserError) as error:
        predict.serving_answer(CONFIG, ["load.rat=1"], rates=[0.0], slo=["x"], model="kernel")
    assert all(part in str(error.value) for part in ("load.rat", "rates: 0", "'x'", "did you mean 'kernels'"))


def test_a_sweep_is_drawn(tmp_path: Path, command: Command) -> None:
    arguments = [part for each in SHORT for part in ("--set", each)]
    drawn = [
        "serving",
        str(CONFIG),
        "--model",
        "formula",
        "--find-capacity",
        "-o",
        str(tmp_path / "sweep.svg"),
        *arguments,
    ]
    assert "grows" in command.text(*drawn, "--sweep", "rate=2,200")
    assert 'id="ttft mean"' in (tmp_path / "sweep.svg").read_text()
    assert "needs a sweep" in command.refused(*drawn)


def test_rates_of_a_sweep() -> None:
    assert rates_of("rate=2..6..2") == (2, 4, 6)
    for wrong in (
        "rat=2",
        "rate=",
        "rate=2,x",
        "rate=0",
        "rate=nan,inf",
        "rate=2,inf",
        "rate=1..9..0",
        "rate=1..9999..1",
    ):
        with pytest.raises(UserError, match="give"):
            rates_of(wrong)
    with pytest.raises(UserError, match="has a rate of 0; rates are above 0"):
        rates_of("rate=0..4..2")


def test_figures_of_several_replicas_are_labelled(command: Command) -> None:
    settings = [part for each in (*SHORT, "placement.dp=4") for part in ("--set", each)]
    (load,) = command.json("serving", str(CONFIG), *settings)["loads"]
    one = load["per_replica"]
    assert load["replicas"] == 4
    assert load["output_tokens_per_s"] == pytest.approx(4 * one["output_tokens_per_s"])
    assert load["requests_per_s"] == pytest.approx(4 * one["requests_per_s"])
    assert "per replica)" in command.text("serving", str(CONFIG), *settings)


def test_batches_of_pipeline_stages_are_no_replicas(command: Command) -> None:
    settings = [part for each in (*SHORT, "placement.pp=2") for part in ("--set", each)]
    (load,) = command.json("serving", str(CONFIG), *settings)["loads"]
    assert load["replicas"] == 1
    assert load["per_replica"]["requests_per_s"] == load["requests_per_s"]
    assert "per replica" not in command.text("serving", str(CONFIG), *settings)


def test_one_engine_of_conversations_is_no_fleet(command: Command) -> None:
    talks = ["serving", str(CONFIG), "--set", "load.prefix.turns=2", "--set", "load.duration_s=5", "--model", "formula"]
    assert "replica" not in command.text(*talks)
    assert "2 replicas at most" in command.text(*talks, "--set", "fleet.replicas=2")


def test_pools_apart_are_judged_by_their_capacity_and_not_by_the_time_in_steps(command: Command) -> None:
    """Few answers at once keep a pool in steps for most of the time, and use little of it."""
    apart = [*SHORT, "load.rate=4", "load.output=250", "fleet.prefill_replicas=1"]
    settings = [part for each in apart for part in ("--set", each)]
    (load,) = command.json("serving", str(CONFIG), *settings, "--model", "formula")["loads"]
    (_, answers), (_, busy) = load["fleet"]["carried_rps"], load["fleet"]["busy"]
    assert load["requests_per_s"] / answers < 0.4 < busy
    assert "that their pools carry in full steps" in command.text("serving", str(CONFIG), *settings)
