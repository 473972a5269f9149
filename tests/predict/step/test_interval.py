"""The 90 % interval of a step: about its median, and the wider the less is known of such runs."""

import math
from typing import Any

import pytest

from predict.prices.published_constants import CONSTANTS
from predict.run.execution import WHOLE_LAYERS
from predict.run.frameworks import framework_names, framework_spread
from predict.step.composition_error import UNPUBLISHED, composition_error, error_terms, published_spread
from predict.step.prediction import Prediction
from tests.predict.workload.parallel_runs import estimated, made

DENSE, MOE, MLA = "llama3-70b", "qwen3-30b-a3b", "deepseek-v3"
LAYERS = 8


def _above(predicted: Prediction) -> float:
    """Relative width above the median."""
    return predicted.step_time.high_us / predicted.step_time.median_us - 1


def _below(predicted: Prediction) -> float:
    return 1 - predicted.step_time.low_us / predicted.step_time.median_us


def _made(model: str = DENSE, **settings: Any) -> Prediction:
    return estimated(made(model, LAYERS, **settings))


RUNS: list[tuple[str, dict[str, Any]]] = [
    (DENSE, {}),
    (DENSE, {"plan__tp": 8, "plan__pp": 4}),
    (DENSE, {"plan__tp": 8, "plan__sp": True, "plan__dp": 4, "plan__zero": 1}),
    (DENSE, {"plan__dp": 16, "plan__zero": 3}),
    (DENSE, {"plan__cp": 8, "execution__overlap_p2p": False}),
    (DENSE, {"precision": "fp8", "execution__fp8_recipe": "rowwise"}),
    (DENSE, {"execution__framework": "megatron-2021", "plan__tp": 8}),
    (MOE, {"plan__dp": 8, "plan__ep": 8}),
    (MLA, {"plan__dp": 16, "plan__ep": 16, "plan__pp": 2}),
]


@pytest.mark.parametrize(("model", "settings"), RUNS, ids=str)
def test_an_interval_holds_its_median_and_more_than_the_composition_error(model: str, settings: dict[str, Any]) -> None:
    predicted = _made(model, **settings)
    time, spread = predicted.step_time, published_spread(predicted.run)
    assert 0 < time.low_us < time.median_us < time.high_us
    assert time.high_us >= time.median_us * math.exp(spread)
    assert time.low_us <= time.median_us * math.exp(-spread)
    # no more than a factor of three either way, which is what nobody could do less well by hand
    assert time.high_us < 3 * time.median_us
    assert time.low_us > time.median_us / 3


WIDER: list[tuple[str, tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]] = [
    ("a mixture of experts", (DENSE, {"plan__dp": 8}), (MOE, {"plan__dp": 8, "plan__ep": 8})),
    ("fp8", (DENSE, {}), (DENSE, {"precision": "fp8"})),
    ("Blackwell", (DENSE, {"cluster__hardware": "h200"}), (DENSE, {"cluster__hardware": "b200"})),
    ("a framework of which less is published", (DENSE, {}), (DENSE, {"execution__framework": "torchtitan"})),
    (
        "a network between nodes in the way",
        (DENSE, {"plan__tp": 8}),
        (DENSE, {"plan__tp": 8, "cluster__gpus_per_node": 2, "cluster__nodes": 4}),
    ),
]


@pytest.mark.parametrize(("_why", "narrow", "wide"), WIDER, ids=[why for why, _, _ in WIDER])
def test_less_is_known_of(_why: str, narrow: tuple[str, dict[str, Any]], wide: tuple[str, dict[str, Any]]) -> None:
    known, less_known = (_made(model, **settings) for model, settings in (narrow, wide))
    assert _above(less_known) > 1.01 * _above(known)
    assert _below(less_known) > 1.01 * _below(known)


def test_spreads_add_in_quadrature() -> None:
    plain = made(DENSE, LAYERS, execution__stragglers=False)
    mixture = made(MOE, LAYERS, execution__stragglers=False)
    elsewhere = made(DENSE, LAYERS, execution__stragglers=False, cluster__hardware="mi300x")
    assert published_spread(plain) == pytest.approx(CONSTANTS["DENSE_STEP"].value)
    assert published_spread(mixture) == pytest.approx(
        math.hypot(CONSTANTS["DENSE_STEP"].value, CONSTANTS["MIXTURE_STEP"].value)
    )
    assert published_spread(elsewhere) == pytest.approx(math.hypot(CONSTANTS["DENSE_STEP"].value, UNPUBLISHED))


def test_the_unknowns_say_what_makes_an_interval_wide() -> None:
    predicted = _made(MOE, plan__dp=8, plan__ep=8)
    assert next(iter(predicted.unknowns)) == "mixture of experts"
    assert list(predicted.unknowns.values()) == sorted(predicted.unknowns.values(), reverse=True)
    half_width = math.log(predicted.step_time.high_us / predicted.step_time.low_us) / 2
    assert math.hypot(*predicted.unknowns.values()) == pytest.approx(half_width, rel=0.05)


def test_samples_replace_the_kinds_of_step_by_validation_runs() -> None:
    run = made(DENSE, LAYERS)
    assert list(error_terms(run, 0.02, {"analytic": 0.0})) == ["the profile's validation runs"]
    assert error_terms(run, 0.02, {"analytic": 1.0}) == error_terms(run, None, {"analytic": 1.0})


def test_every_framework_says_how_far_published_runs_of_it_lie() -> None:
    spreads = {name: framework_spread(name) for name in framework_names()}
    assert spreads[WHOLE_LAYERS] == 0
    assert all(0 <= spread < 1 for spread in spreads.values())


def test_samples_are_trusted_as_far_as_they_cover_the_work() -> None:
    run = made(DENSE, LAYERS)
    prior = published_spread(run)
    assert composition_error(run, None, {"analytic": 0.0}) == prior
    shares = [composition_error(run, 0.02, {"analytic": share}) for share in (0.0, 0.5, 1.0)]
    assert shares == pytest.approx([0.02, (0.02 + prior) / 2, prior])
