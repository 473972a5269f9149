"""The pace of the machine beside a measured step, and the part of an error that it makes."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

import predict
from predict.measurement import pace as pace_module
from predict.measurement.pace import Pace, pace_beside, pace_now, pace_over
from predict.prices.open import SpeedOfLight
from predict.prices.pace import AtPace
from predict.prices.price_list import PriceList
from predict.run.execution import Execution
from predict.step.prediction import Prediction
from regressors.dataset.pace_facts import RULE
from sampling.errors import SamplesError
from sampling.hardware.cluster import Cluster
from sampling.store.pace import Resource
from sampling.store.pace_log import References

USUAL_US: Mapping[Resource, float] = {"compute": 500.0, "memory": 100.0, "wire": 200.0}


def prices_at(cluster: Cluster, execution: Execution, paces: Mapping[Resource, float] | None = None) -> PriceList:
    """Prices of a profile whose sessions read USUAL_US."""
    of_pace = {
        "reference_us": dict(USUAL_US),
        "disturbance": {"compute": 1.1},
        "mix": {"compute": 0.75, "memory": 0.25},
    }
    facts = {"pace": {str(cluster.gpus_per_node): of_pace}, "pace_rule": RULE}
    model = AtPace(SpeedOfLight(), paces or {})
    return PriceList([model], cluster, profile_error=0.0, provenance={"samples": facts})


def slowed(by: float) -> References:
    """The references of a machine that takes so many times as long as usual."""
    return References(time_us={resource: by * time_us for resource, time_us in USUAL_US.items()})


@pytest.fixture
def prediction(monkeypatch: pytest.MonkeyPatch) -> Prediction:
    monkeypatch.setattr(pace_module, "open_prices", prices_at)
    run = predict.load("configs/runs/demo.yml")
    return predict.estimate(run, prices=prices_at(run.cluster, run.execution))


def test_a_machine_whose_references_all_take_twice_as_long_has_half_the_pace(prediction: Prediction) -> None:
    pace = pace_beside(prediction, slowed(2))
    assert pace is not None
    assert pace.of_step == pytest.approx(0.5)
    assert pace.by_resource == dict.fromkeys(USUAL_US, 0.5)


def test_the_pace_of_a_step_is_that_of_what_it_waits_for(prediction: Prediction) -> None:
    pace = pace_beside(prediction, References(time_us={**USUAL_US, "compute": 1000.0}))
    assert pace is not None
    assert 0.5 < pace.of_step < 1


def test_several_rounds_have_the_median_pace(prediction: Prediction) -> None:
    pace = pace_over(prediction, [slowed(slow) for slow in (1.0, 1.25, 5.0)])
    assert pace is not None
    assert pace.of_step == pytest.approx(0.8)
    assert pace_over(prediction, []) is None


def test_an_error_is_parted_into_pace_and_models() -> None:
    # predicted 100, measured 125 on a machine at 0.8 of its pace, so that the models are right
    pace = Pace(by_resource={"compute": 0.8}, of_step=0.8)
    assert pace.of_models(100 / 125 - 1) == pytest.approx(0.0)
    assert "the pace makes −20.0 %, other work 0.0 % and the models 0.0 %" in pace.parts_of(100 / 125 - 1)
    assert "other work" not in str(pace)


def test_what_other_work_takes_from_a_step_is_a_part_of_its_own() -> None:
    # predicted 100, measured 150 at 0.8 of the pace, where other work makes a step 1.2 times as long
    pace = Pace(by_resource={"compute": 0.8}, of_step=0.8, disturbance=1.2)
    assert pace.of_models(100 / 150 - 1) == pytest.approx(0.0)
    assert "the pace makes −20.0 %, other work −16.7 % and the models 0.0 %" in pace.parts_of(100 / 150 - 1)
    assert "other work makes a step 1.20 × as long" in str(pace)


def test_disturbance_counts_beyond_that_which_rows_count_with(prediction: Prediction) -> None:
    usual = replace(slowed(1), disturbance={"compute": 1.1, "memory": 1.0})
    more = replace(usual, disturbance={"compute": 1.4, "memory": 1.0})
    found = [pace_beside(prediction, each) for each in (usual, more, replace(usual, waited_share=0.2))]
    factors = [pace.disturbance for pace in found if pace]
    assert factors == pytest.approx([1.0, (0.75 * 1.4 + 0.25) / (0.75 * 1.1 + 0.25), 1.25])


def test_rows_without_readings_have_no_pace() -> None:
    prediction = predict.one_batch("configs/runs/demo.yml")
    assert pace_beside(prediction, slowed(1)) is None
    with pytest.raises(SamplesError, match="--pace now"):
        pace_now(prediction)
