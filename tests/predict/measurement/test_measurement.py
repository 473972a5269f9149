"""Noise, median and rounds of a measurement."""

import pytest

from predict.measurement.measurement import pool
from predict.measurement.system_noise import OTHERS, SPREAD
from predict.reports.measurement import measurement_text
from tests.predict.measurement.measured_steps import measured


def test_the_median_is_of_the_quiet_steps() -> None:
    result = measured((190.0, 900.0, 210.0), others_shares=(0.0, 0.4, 0.0))
    assert (result.median_us, result.dropped_steps, result.noise) == (200.0, 1, "")
    assert result.tokens_per_s == pytest.approx(5e6)
    shown = result.to_json()
    assert shown["step_time_us"] == {"median": 200.0, "p10": 192.0, "p90": 208.0, "all": [190.0, 900.0, 210.0]}
    assert shown["loss"] == {"first": 4.0, "last": 3.0}
    assert shown["dropped_steps"] == 1


@pytest.mark.parametrize(
    ("times", "share", "noise", "line"),
    [
        ((716.0, 780.0, 1020.0, 1340.0, 1650.0, 1967.0), 0.0, SPREAD, "the steps differ widely"),
        ((716.0, 780.0, 1020.0, 1340.0, 1650.0, 1967.0), 0.5, OTHERS, "other processes disturbed most steps;"),
        ((880.0, 900.0, 940.0, 1000.0, 1010.0, 1080.0, 1150.0, 1190.0), 0.0, "", "loss"),  # an ordinary machine
        ((*(1000.0, 1010.0, 990.0) * 3, 3000.0), 0.0, "", "loss"),  # one slow step of ten
    ],
)
def test_steps_that_differ_widely_are_noisy_beside_quiet_processes(
    times: tuple[float, ...], share: float, noise: str, line: str
) -> None:
    result = measured(times, others_shares=(share,) * len(times))
    assert result.noise == noise
    assert (result.to_json()["noisy"], result.to_json()["noise"]) == (bool(noise), noise)
    assert line in measurement_text(result).split("\n")[-1]


def test_rounds_are_pooled_step_by_step() -> None:
    both = pool(
        [measured((100.0, 120.0), others_shares=(0.0, 0.0)), measured((500.0, 140.0), others_shares=(0.3, 0.0))]
    )
    assert both.step_times_us == (100.0, 120.0, 500.0, 140.0)
    assert both.median_us == 120.0
    assert both.losses == (4.0, 3.0, 4.0, 3.0)
