"""Power of a step by what the board does, and what a power limit costs."""

from functools import cache
from typing import Any

import pytest

from predict import estimate
from predict.ledger.waterfall import waterfall
from predict.step.prediction import Prediction
from sampling.errors import ConfigError
from sampling.hardware.cluster import load_cluster
from tests.predict.workload.parallel_runs import made

PLAN: dict[str, Any] = {"plan__tp": 8, "plan__sp": True, "plan__pp": 4, "plan__dp": 8, "batch__global": 128}


@cache
def limited(limit_w: float | None) -> Prediction:
    held: dict[str, Any] = {"cluster__power_limit_w": limit_w} if limit_w else {}
    return estimate(made("llama3-70b", **PLAN, **held))


def test_shares_of_the_step_are_those_of_the_ledger_and_the_mean_lies_between_idle_and_the_limit() -> None:
    power = limited(None).power
    assert power is not None
    bars = {bar.name: bar.time_us / limited(None).median_us for bar in waterfall(limited(None))}
    assert power.shares["products"] == pytest.approx(bars["compute"])
    assert power.shares["memory"] == pytest.approx(bars["memory-bound"])
    assert power.shares["communication"] == pytest.approx(bars["TP exposed"] + bars["DP exposed"])
    assert 0.15 * 700 < power.mean_w < 700
    # the bubble of four stages and 16 microbatches, 3 in 19, is waiting
    assert power.shares["waiting"] == pytest.approx(limited(None).bubble_fraction, abs=0.05)


def test_a_lower_limit_takes_longer_and_less_energy() -> None:
    steps = [limited(watts).median_us for watts in (None, 600, 450, 300)]
    assert steps == sorted(steps)
    joules = [one.median_us * one.power.mean_w for one in map(limited, (None, 600, 450, 300)) if one.power]
    assert joules == sorted(joules, reverse=True)


def test_products_slow_down_with_the_cube_root_of_the_power_beyond_idle_and_memory_only_below_its_own() -> None:
    gpu = load_cluster(hardware="h100-sxm", nodes=1, gpus_per_node=8, profile="x", power_limit_w=550).gpu
    assert gpu.clock_kept("products") == pytest.approx(((550 - 105) / (700 - 105)) ** (1 / 3))
    assert gpu.clock_kept("memory") == 1.0
    assert gpu.watts("products") == 550


def test_the_limit_of_the_board_itself_changes_nothing() -> None:
    assert limited(700).median_us == limited(None).median_us


@pytest.mark.parametrize("watts", [100, 800])
def test_a_limit_that_the_board_does_not_take_is_refused(watts: float) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.power_limit_w: .* give 175 to 700"):
        load_cluster(hardware="h100-sxm", nodes=1, gpus_per_node=8, profile="x", power_limit_w=watts)
