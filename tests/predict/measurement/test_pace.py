"""The pace of the machine beside a measured step, and the part of an error that it makes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import predict
from predict.measurement import pace as pace_module
from predict.measurement.pace import Pace, pace_beside, pace_now, pace_over
from predict.prices.open import SpeedOfLight
from predict.prices.pace import AtPace
from predict.prices.price_list import PriceList
from predict.run.execution import Execution
from predict.step.prediction import Prediction
from sampling.errors import SamplesError
from sampling.hardware.cluster import Cluster
from sampling.store.pace import Resource

USUAL_US: Mapping[Resource, float] = {"compute": 500.0, "memory": 100.0, "wire": 200.0}


def prices_at(cluster: Cluster, execution: Execution, paces: Mapping[Resource, float] | None = None) -> PriceList:
    """Prices of a profile whose sessions read USUAL_US."""
    facts = {"pace": {str(cluster.gpus_per_node): {"reference_us": dict(USUAL_US)}}}
    model = AtPace(SpeedOfLight(), paces or {})
    return PriceList([model], cluster, profile_error=0.0, provenance={"samples": facts})


@pytest.fixture
def prediction(monkeypatch: pytest.MonkeyPatch) -> Prediction:
    monkeypatch.setattr(pace_module, "open_prices", prices_at)
    run = predict.load("configs/runs/demo.yml")
    return predict.estimate(run, prices=prices_at(run.cluster, run.execution))


def test_a_machine_whose_references_all_take_twice_as_long_has_half_the_pace(prediction: Prediction) -> None:
    pace = pace_beside(prediction, {resource: 2 * time_us for resource, time_us in USUAL_US.items()})
    assert pace is not None
    assert pace.of_step == pytest.approx(0.5)
    assert pace.by_resource == dict.fromkeys(USUAL_US, 0.5)


def test_the_pace_of_a_step_is_that_of_what_it_waits_for(prediction: Prediction) -> None:
    pace = pace_beside(prediction, dict(USUAL_US) | {"compute": 1000.0})
    assert pace is not None
    assert 0.5 < pace.of_step < 1


def test_several_rounds_have_the_median_pace(prediction: Prediction) -> None:
    rounds = [{resource: slow * time_us for resource, time_us in USUAL_US.items()} for slow in (1.0, 1.25, 5.0)]
    pace = pace_over(prediction, rounds)
    assert pace is not None
    assert pace.of_step == pytest.approx(0.8)
    assert pace_over(prediction, []) is None


def test_an_error_is_parted_into_pace_and_models() -> None:
    # predicted 100, measured 125 on a machine at 0.8 of its pace, so that the models are right
    pace = Pace(by_resource={"compute": 0.8}, of_step=0.8)
    assert pace.of_models(100 / 125 - 1) == pytest.approx(0.0)
    assert "the pace makes −20.0% and the models 0.0%" in pace.parts_of(100 / 125 - 1)


def test_rows_without_readings_have_no_pace() -> None:
    prediction = predict.one_batch("configs/runs/demo.yml")
    assert pace_beside(prediction, USUAL_US) is None
    with pytest.raises(SamplesError, match="--pace now"):
        pace_now(prediction)
