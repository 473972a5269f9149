"""Judgements of a measured step: how likely a sound run is, and what is likely where it is slow."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import predict
from predict.measured_runs.judge import MACHINE, Judgement, judge, suspects, with_values
from predict.measured_runs.measured_step import MeasuredStep, measured_step
from predict.measurement import pace as pace_module
from predict.measurement.measurement import settings_of
from predict.reports.diagnosis import verdict_line
from predict.step.prediction import Prediction
from sampling.errors import UserError
from tests.bench.diagnosis import FOUR_NODES, SMALL
from tests.predict.command import Command
from tests.predict.measurement.test_pace import prices_at, slowed


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    return predict.one_batch(FOUR_NODES)


def judged(prediction: Prediction, factor: float, noise: float = 0.0, **known: Any) -> Judgement:
    step_us = factor * prediction.median_us
    measured = MeasuredStep(step_us=step_us, p10_us=step_us, p90_us=step_us, source="here", noise=noise, **known)
    return judge(prediction, measured)


def probability_of(cause: str, found: Judgement) -> float:
    return next((each.probability for each in found.causes if each.cause == cause), 0.0)


def factor_of(cause: str, prediction: Prediction) -> float:
    """The measured step over the predicted one of a run that has what a suspect says."""
    wrong = next(each.wrong for each in suspects(prediction) if each.cause == cause)
    return predict.estimate(with_values(prediction.run, wrong), require_fit=False).median_us / prediction.median_us


def test_the_slower_a_step_the_less_likely_it_is_sound(prediction: Prediction) -> None:
    found = [judged(prediction, factor).normal_probability for factor in (0.7, 0.9, 1.0, 1.1, 1.2, 1.4, 2.0, 30.0)]
    assert found == sorted(found, reverse=True)
    assert found[2] > 0.85
    assert found[-2] < 0.01
    assert judged(prediction, 1.4, noise=0.3).normal_probability > found[5], "noise explains some of it"


def test_a_verdict_follows_from_the_probability(prediction: Prediction) -> None:
    assert [judged(prediction, factor).verdict for factor in (0.5, 1.0, 3.0)] == ["faster", "normal", "slow"]
    assert judged(prediction, 1.0).causes == ()
    assert judged(prediction, 1.1).ratio.median == pytest.approx(1.1)


def test_time_that_the_median_has_counts_once(prediction: Prediction) -> None:
    """Stragglers: the measured step has what a rank's usual lateness costs, and only the mean has the rest."""
    chance = random.Random(3)
    times_us = [prediction.median_us * (0.9 + chance.expovariate(5)) for _ in range(200)]
    step_us = float(np.median(times_us))
    measured = MeasuredStep(
        step_us=step_us, p10_us=step_us, p90_us=step_us, source="here", logged=tuple(enumerate(times_us, 1))
    )
    found, mean_us = judge(prediction, measured), float(np.mean(times_us[20:]))
    assert found.normal_probability >= judged(prediction, mean_us / prediction.median_us).normal_probability
    cause = next(each for each in found.causes if each.cause == "stragglers")
    assert step_us + cause.over_median_us == pytest.approx(mean_us, rel=0.01)
    assert cause.share_of(step_us) == pytest.approx(cause.cost_us / mean_us, rel=0.01)


@pytest.mark.parametrize("cause", ["fp32", "unfused_attention", "recompute"])
def test_a_run_that_has_what_its_config_does_not_say_is_recognised(prediction: Prediction, cause: str) -> None:
    suspect = next(each for each in suspects(prediction) if each.cause == cause)
    wrong = predict.estimate(with_values(prediction.run, suspect.wrong), require_fit=False)
    found = judged(prediction, wrong.median_us / prediction.median_us)
    assert found.causes[0].cause == cause
    assert found.causes[0].cost_us == pytest.approx(wrong.median_us - prediction.median_us)
    assert 0.1 <= found.causes[0].probability < 1
    least = min(judged(prediction, 1.2).causes, key=lambda each: each.cost_us)
    assert least.cost_us < 0.19 * prediction.median_us, "a thing costs no more than the step has with it"


def test_a_slow_link_is_said_with_the_speed_that_explains_the_step(prediction: Prediction) -> None:
    slow = predict.estimate(with_values(prediction.run, {"execution.between_nodes_time": 15.0}), require_fit=False)
    found = judged(prediction, slow.median_us / prediction.median_us)
    link = next(each for each in found.causes if each.cause == "slow_link")
    assert "Links between nodes at 6.7 % of their speed" in link.text
    assert link.settings == {"execution.between_nodes_time": 1.0}


def test_a_slower_machine_comes_before_a_setting_that_the_config_states(prediction: Prediction) -> None:
    stated = predict.one_batch(FOUR_NODES, ["plan.recompute=none"])
    as_if_recomputed = factor_of("recompute", stated)
    by_default, as_stated = (judged(each, as_if_recomputed) for each in (prediction, stated))
    assert as_stated.causes[0].cause == MACHINE
    assert probability_of("recompute", as_stated) < probability_of(MACHINE, as_stated) / 2
    assert probability_of("recompute", by_default) > probability_of("recompute", as_stated)
    assert probability_of(MACHINE, by_default) > 0.2, "a time alone does not rule it out"


def test_advice_says_what_the_config_states_and_what_it_leaves_to_a_default(prediction: Prediction) -> None:
    recompute = next(
        each for each in judged(prediction, factor_of("recompute", prediction)).causes if each.cause == "recompute"
    )
    assert "the config leaves plan.recompute to its default, none" in recompute.advice
    assert "--set plan.recompute=full predicts the run as it is" in recompute.advice
    wide = next(each for each in judged(prediction, factor_of("fp32", prediction)).causes if each.cause == "fp32")
    assert wide.advice == "the config or script already says so: check what the run really uses"


def test_settings_that_a_measurement_names_are_not_suspected(prediction: Prediction) -> None:
    factor = factor_of("recompute", prediction)
    found = judged(prediction, factor, settings=frozenset(["plan.recompute"]))
    assert probability_of("recompute", found) == 0
    assert probability_of(MACHINE, found) > probability_of(MACHINE, judged(prediction, factor))


def test_a_pace_that_was_read_beside_the_steps_is_a_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace_module, "open_prices", prices_at)
    run = predict.load("configs/runs/demo.yml")
    prediction = predict.estimate(run, prices=prices_at(run.cluster, run.execution))
    found = judged(prediction, 1.5, references=(slowed(1.5),))
    assert [(each.cause, each.probability) for each in found.causes] == [(MACHINE, 1)]
    assert found.causes[0].cost_us == pytest.approx(found.measured.step_us / 3)
    assert "this machine at 66.7 % of the pace of its rows" in found.causes[0].text
    at_its_pace = judged(prediction, 2.0, references=(slowed(1.0),))
    assert at_its_pace.causes and probability_of(MACHINE, at_its_pace) == 0


@pytest.mark.parametrize(("longer", "references"), [(1.0, 0.6), (0.9, 0.5), (3.0, 2.0)])
def test_causes_are_weighed_at_the_pace_that_was_read(
    monkeypatch: pytest.MonkeyPatch, longer: float, references: float
) -> None:
    monkeypatch.setattr(pace_module, "open_prices", prices_at)
    run = predict.load(SMALL, ["cluster.nodes=1"])
    prediction = predict.estimate(run, prices=prices_at(run.cluster, run.execution))
    found = judged(prediction, longer, references=(slowed(references),))
    slowdown = found.slowdown or 1.0
    assert slowdown == pytest.approx(references, rel=0.05), "fixed waits follow no pace"
    at_pace = judged(prediction, longer / slowdown)
    likely = {each.cause: each for each in found.causes if each.probability < 1}
    assert likely
    for cause in (each for each in at_pace.causes if each.cause in likely):
        assert likely[cause.cause].cost_us == pytest.approx(cause.cost_us * min(1.0, slowdown))
        assert 0 < likely[cause.cause].share_of(found.measured.step_us) < 1
    known_us = sum(each.cost_us for each in found.causes if each.cause == MACHINE)
    lost_us = found.measured.step_us - prediction.median_us * min(1.0, slowdown)
    assert all(known_us + each.cost_us <= lost_us * 1.000001 for each in likely.values()), "no time counts twice"


def test_a_short_step_is_called_slow_only_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace_module, "open_prices", prices_at)
    run = predict.load("configs/runs/demo.yml")
    prediction = predict.estimate(run, prices=prices_at(run.cluster, run.execution))
    found = judged(prediction, 1.0, references=(slowed(0.2),))
    assert "slow" in found.verdict
    assert "slower than this machine's pace allows" in verdict_line(found)
    assert judged(prediction, 0.4, references=(slowed(0.4),)).verdict == "normal", "the machine is as much faster"
    assert judged(prediction, 0.1, references=(slowed(0.4),)).verdict == "faster"
    assert "pace allows" not in verdict_line(judged(prediction, 3.0, references=(slowed(2.0),)))


def test_a_slower_gpu_is_said_in_the_words_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace_module, "open_prices", prices_at)
    run = predict.load(SMALL, ["cluster.gpus_per_node=1", "plan.dp=1", "plan.zero=0"])
    prediction = predict.estimate(run, prices=prices_at(run.cluster, run.execution))
    found = judged(prediction, 1.5, references=(slowed(1.5),)).causes[0]
    assert (found.cause, found.probability) == (MACHINE, 1)
    assert found.text.endswith("lower clocks or a power limit, other work, or a weak GPU.")
    assert "nvidia-smi" in found.advice


def test_explain_takes_a_log_without_a_trace(command: Command, prediction: Prediction) -> None:
    found = command.json("explain", "configs/runs/demo.yml", "--log", "5s")
    assert found["normal_probability"] < 0.05
    assert found["step_us"]["measured"] == 5e6
    assert "slow" in command.text("explain", "configs/runs/demo.yml", "--log", "5s")
    assert "--trace: missing; give a trace of the run, or its --log" in command.refused(
        "explain", "configs/runs/demo.yml"
    )


def test_a_file_of_measure_gives_the_settings_that_it_names_and_its_references(tmp_path: Path) -> None:
    run = predict.load("configs/runs/demo.yml")
    references = [{"time_us": {"compute": 500.0}, "waited_share": 0.1}, {"time_us": "damaged"}, 3]
    content = {"step_time_us": {"median": 9e5}, "settings": settings_of(run), "references": references}
    (tmp_path / "measured.json").write_text(json.dumps(content))
    found = measured_step(str(tmp_path / "measured.json"), run)
    assert {"precision", "plan.recompute", "execution.attention"} <= found.settings
    assert [(each.time_us, each.waited_share) for each in found.references] == [({"compute": 500.0}, 0.1)]


@pytest.mark.parametrize("time", ["1e300s", "1e-12us", "12000000min"])
def test_a_time_that_no_step_takes_is_refused(time: str) -> None:
    with pytest.raises(UserError, match=r"no step takes that; give one from 1\.00 µs to 2,778 h"):
        measured_step(time, predict.load("configs/runs/demo.yml"))


def test_a_time_without_a_known_unit_is_told_the_units() -> None:
    with pytest.raises(UserError, match="'5h' is not a time above 0 with a unit, one of us, µs, ms, s, min"):
        measured_step("5h", predict.load("configs/runs/demo.yml"))
