"""Commands on serving configs: what they print, draw and refuse."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import predict
from predict.cli.serving import rates_of
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
    step = ["serving-step", str(CONFIG), "--decodes", "8x500", "--coefficients", str(own)]
    for names in ([], ["--model", "all"]):
        assert "coefficients: my own" in command.text(*step, *names)
    batch = StepBatch(decodes=(500,) * 8)
    assert step_time(batch, CONFIG, coefficients=own) == step_time(batch, CONFIG, model="formula")


def test_all_faults_of_a_question_in_python_are_named_at_once() -> None:
    with pytest.raises(UserError) as error:
        predict.serving_answer(CONFIG, ["load.rat=1"], rates=[0.0], slo=["x"], model="kernel")
    assert all(part in str(error.value) for part in ("load.rat", "rates: 0", "'x'", "did you mean 'kernels'"))


def test_a_sweep_is_drawn(tmp_path: Path, command: Command) -> None:
    drawn = [
        "serving",
        str(CONFIG),
        *settings(*SHORT),
        *["--model", "formula", "--find-capacity", "--sweep", "rate=2,200", "-o"],
    ]
    assert "grows" in command.text(*drawn, str(tmp_path / "sweep.svg"))
    assert 'id="ttft mean"' in (tmp_path / "sweep.svg").read_text()


def test_rates_of_a_sweep() -> None:
    assert rates_of("rate=2..6..2") == (2, 4, 6)
    for wrong in [
        "rat=2",
        "rate=",
        "rate=2,x",
        "rate=0",
        "rate=nan,inf",
        "rate=2,inf",
        "rate=1..9..0",
        "rate=1..9999..1",
    ]:
        with pytest.raises(UserError, match="give"):
            rates_of(wrong)
    with pytest.raises(UserError, match="has a rate of 0; rates are above 0"):
        rates_of("rate=0..4..2")


def settings(*texts: str) -> list[str]:
    return [part for each in texts for part in ("--set", each)]


def test_figures_of_several_replicas_are_labelled(command: Command) -> None:
    asked = ("serving", str(CONFIG), *settings(*SHORT, "placement.dp=4"))
    (load,) = command.json(*asked)["loads"]
    one = load["per_replica"]
    assert load["replicas"] == 4
    assert load["output_tokens_per_s"] == pytest.approx(4 * one["output_tokens_per_s"])
    assert load["requests_per_s"] == pytest.approx(4 * one["requests_per_s"])
    assert "per replica)" in command.text(*asked)


def test_batches_of_pipeline_stages_are_no_replicas(command: Command) -> None:
    asked = ("serving", str(CONFIG), *settings(*SHORT, "placement.pp=2"))
    (load,) = command.json(*asked)["loads"]
    assert load["replicas"] == 1
    assert load["per_replica"]["requests_per_s"] == load["requests_per_s"]
    assert "per replica" not in command.text(*asked)


def test_answers_of_one_token_have_no_time_per_token(command: Command) -> None:
    asked = ("serving", str(CONFIG), *settings(*SHORT), "--model", "formula")
    assert "TPOT" in command.text(*asked)
    assert "TPOT" not in command.text(*asked, "--set", "load.output=1")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("load.rate=0.001", "load.rate: 0.001 requests/s for load.duration_s, 60 s, are less than one request; give"),
        ("load.requests=5", "whose rate and duration_s give them; give concurrency, or remove it"),
        ("speculation.by_position=[0.5, 0.7]", "give falling shares"),
        ("adapters.kind=lora", "adapters: a section of training configs; servers of adapters are not modelled"),
    ],
)
def test_a_wrong_setting_is_reported_with_its_fix(command: Command, setting: str, said: str) -> None:
    drafts = ("--set", "speculation.kind=eagle") if "speculation" in setting else ()
    refused = command.refused("serving", str(CONFIG), *drafts, "--set", setting)
    assert said in refused
    assert "; remove it" not in refused and "predict search" not in refused


def test_an_empty_chunk_is_refused_by_its_option(command: Command) -> None:
    step = ("serving-step", str(CONFIG))
    assert "--prefill: '4x0'" in command.refused(*step, "--prefill", "4x0")
    assert "4 decodes over 0 cached tokens" in command.text(*step, "--decodes", "4x0")


def test_a_model_that_is_published_in_fewer_bits_says_so_where_no_precision_is_stated(
    tmp_path: Path, command: Command
) -> None:
    config = tmp_path / "open.yml"
    config.write_text("model: gpt-oss-120b\nhardware: H100\nplacement: {tp: 8}\nload: {rate: 1}\n")
    step = ("serving-step", str(config), "--decodes", "1x10")
    note = "weights of gpt-oss-120b are published in mxfp4; bf16 is taken"
    assert note in command.text(*step)
    for stated in ("placement.precision=bf16", "placement.precision=mxfp4", "model=llama3-8b"):
        assert note not in command.text(*step, "--set", stated)
    assert note in command.refused(*step, "--set", "placement.tp=1", code=4)


def test_one_engine_of_conversations_is_no_fleet(command: Command) -> None:
    talks = ["serving", str(CONFIG), "--set", "load.prefix.turns=2", "--set", "load.duration_s=5", "--model", "formula"]
    assert "replica" not in command.text(*talks)
    assert "at most 2 replicas at once" in command.text(*talks, "--set", "fleet.replicas=2")


def test_pools_apart_are_judged_by_their_capacity_and_not_by_the_time_in_steps(command: Command) -> None:
    """Few answers at once keep a pool in steps for most of the time, and use little of it."""
    apart = [*SHORT, "load.rate=4", "load.output=250", "fleet.prefill_replicas=1"]
    (load,) = command.json("serving", str(CONFIG), *settings(*apart), "--model", "formula")["loads"]
    (_, answers), (_, busy) = load["fleet"]["carried_rps"], load["fleet"]["busy"]
    assert load["requests_per_s"] / answers < 0.4 < busy
