"""The cost of a whole training follows from its step by arithmetic, and its inputs are read with their units."""

import math

import pytest

import predict
from predict.ledger.training_cost import GOODPUT, Price, parse_price, parse_tokens
from sampling.errors import UserError
from sampling.files.places import CONFIGS

RUN = CONFIGS / "runs" / "llama3-70b-64xh100.yml"


@pytest.fixture(scope="module")
def prediction() -> predict.Prediction:
    return predict.one_batch(RUN)


def test_days_hours_money_and_energy(prediction: predict.Prediction) -> None:
    cost = predict.days(prediction, "2T", price="$20/node-h", goodput=0.8)
    assert cost.steps == math.ceil(2e12 / (128 * 8192))
    hours = cost.steps * prediction.median_us / 3.6e9 / 0.8
    assert cost.days.median == pytest.approx(hours / 24)
    assert cost.gpu_hours.median == pytest.approx(64 * hours)
    assert cost.cost is not None
    assert (cost.cost.median, cost.currency) == (pytest.approx(8 * 20 * hours), "$")
    assert cost.energy_mwh is not None and prediction.power is not None
    assert cost.energy_mwh.median == pytest.approx(64 * hours * prediction.power.mean_w / 1e6)
    assert cost.energy_mwh.high / cost.energy_mwh.median > cost.days.high / cost.days.median


def test_bounds_are_those_of_the_step_time(prediction: predict.Prediction) -> None:
    cost, step = predict.days(prediction, "300B"), prediction.step_time
    assert cost.goodput == GOODPUT
    assert cost.cost is None
    assert cost.days.low / cost.days.median == pytest.approx(step.low_us / step.median_us)
    assert cost.gpu_hours.high / cost.gpu_hours.median == pytest.approx(step.high_us / step.median_us)


def test_a_device_whose_power_nobody_states_has_no_energy() -> None:
    cost = predict.days(predict.one_batch(CONFIGS / "runs" / "demo.yml"), "1M")
    assert cost.energy_mwh is None


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("2T", 2e12), ("14.8T", 14.8e12), ("300B", 3e11), ("1.5e12", 1.5e12), ("5M", 5e6), ("1000", 1e3)],
)
def test_tokens(text: str, tokens: float) -> None:
    assert parse_tokens(text) == pytest.approx(tokens)


@pytest.mark.parametrize("text", ["0", "1e99"])
def test_a_number_of_tokens_out_of_range_is_not_called_malformed(text: str) -> None:
    with pytest.raises(UserError, match=rf"^--tokens: '{text}' is not from 1 to 1e\+18; write for example"):
        parse_tokens(text)


@pytest.mark.parametrize("text", ["2X", "two", "", "-1T", "2 T T", "2TB"])
def test_tokens_that_are_none(text: str) -> None:
    with pytest.raises(
        UserError, match=r"^--tokens: .* is not a number of tokens; write for example 300B, 2T or 1\.5e12$"
    ):
        parse_tokens(text)


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("2.5/gpu-h", Price(amount=2.5, currency="", per_node=False)),
        ("$2.5/gpu-hour", Price(amount=2.5, currency="$", per_node=False)),
        ("20 EUR/node-h", Price(amount=20.0, currency="EUR", per_node=True)),
    ],
)
def test_price(text: str, price: Price) -> None:
    assert parse_price(text) == price


@pytest.mark.parametrize("text", ["2.5", "2.5/h", "$/gpu-h", "cheap", "-1/gpu-h", "0/gpu-h"])
def test_a_price_needs_its_unit(text: str) -> None:
    with pytest.raises(UserError, match=r"^--price: .* is not a price above 0 with its unit"):
        parse_price(text)


@pytest.mark.parametrize("goodput", [0.0, -0.1, 1.01, math.nan])
def test_a_goodput_is_a_share(goodput: float, prediction: predict.Prediction) -> None:
    with pytest.raises(UserError, match="--goodput"):
        predict.days(prediction, "1T", goodput=goodput)
