"""Judgements of a measured step: how likely a sound run is, and what is likely where it is slow."""

import random

import numpy as np
import pytest

import predict
from predict.measured_runs.judge import Judgement, judge, suspects, with_values
from predict.measured_runs.measured_step import MeasuredStep
from predict.step.prediction import Prediction
from tests.bench.diagnosis import FOUR_NODES
from tests.predict.command import Command


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    return predict.one_batch(FOUR_NODES)


def judged(prediction: Prediction, factor: float, noise: float = 0.0) -> Judgement:
    step_us = factor * prediction.median_us
    return judge(prediction, MeasuredStep(step_us=step_us, p10_us=step_us, p90_us=step_us, source="here", noise=noise))


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
    suspect = next(each for each in suspects(prediction.run) if each.cause == cause)
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


def test_explain_takes_a_log_without_a_trace(command: Command, prediction: Prediction) -> None:
    found = command.json("explain", "configs/runs/demo.yml", "--log", "5s")
    assert found["normal_probability"] < 0.05
    assert found["step_us"]["measured"] == 5e6
    assert "slow" in command.text("explain", "configs/runs/demo.yml", "--log", "5s")
    assert "--trace: missing; give a trace of the run, or its --log" in command.refused(
        "explain", "configs/runs/demo.yml"
    )
