"""Advice is computed: changes that fit, by their own step times, within the rules of a config."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predict.memory.advice import Advice, _divisors, _leaner, advise, changed
from predict.memory.estimate import memory_of
from predict.run.training_run import TrainingRun
from tests.predict.workload.parallel_runs import made, step_us, with_advice


def advice_for(run: TrainingRun) -> tuple[Advice, ...]:
    return advise(memory_of(run), step_us, step_us_before=step_us(run))


@pytest.fixture(scope="module")
def too_large() -> TrainingRun:
    run = made(
        "llama3-70b", plan__tp=4, plan__sp=True, plan__pp=4, plan__dp=4, plan__zero=1, batch__micro=4, batch__global=128
    )
    assert memory_of(run).verdict == "OOM"
    return run


@pytest.mark.parametrize(
    ("framework", "allocator", "offered"),
    [("megatron-core", None, True), ("megatron-core", "expandable", False), ("nemo", None, False)],
)
def test_expandable_segments_are_offered_where_the_run_has_none(
    framework: str, allocator: str | None, offered: bool
) -> None:
    stated = {"execution__allocator": allocator} if allocator else {}
    assert ("expandable segments" in _leaner(made(execution__framework=framework, **stated))) is offered


@given(st.integers(1, 3000))
def test_the_divisors_of_a_number_are_those_that_leave_nothing(number: int) -> None:
    assert _divisors(number) == [each for each in range(1, number + 1) if number % each == 0]


def test_nothing_is_advised_where_it_fits() -> None:
    run = made("llama3-8b", plan__tp=8, plan__sp=True)
    assert memory_of(run).verdict == "FITS"
    assert advice_for(run) == ()


def test_each_change_makes_it_fit_at_its_own_cost(too_large: TrainingRun) -> None:
    found = advice_for(too_large)
    assert {"recompute", "smaller microbatch"} <= {advice.kind for advice in found}
    for advice in found:
        mended = with_advice(too_large, advice)
        memory = memory_of(mended)
        assert memory.verdict == advice.verdict == "FITS"
        assert memory.point_bytes == advice.point_bytes
        assert step_us(mended) == advice.step_us
        assert advice.cost == pytest.approx(advice.step_us / step_us(too_large) - 1)


def test_the_cheapest_comes_first(too_large: TrainingRun) -> None:
    steps = [advice.step_us for advice in advice_for(too_large)]
    assert steps == sorted(steps)


def test_a_step_no_larger_than_needed_is_advised(too_large: TrainingRun) -> None:
    """The largest microbatch that fits."""
    (advice,) = [each for each in advice_for(too_large) if each.kind == "smaller microbatch"]
    size = int(advice.settings[0].removeprefix("batch.micro="))
    larger = [each for each in (1, 2) if each > size]
    assert all(memory_of(changed(too_large, {"batch.micro": each})).verdict != "FITS" for each in larger)


def test_changes_keep_the_rules_of_a_config(too_large: TrainingRun) -> None:
    for advice in advice_for(too_large):
        plan = with_advice(too_large, advice).plan
        assert plan.tp * plan.pp * plan.cp * plan.dp == too_large.cluster.world_size
        assert plan.tp <= too_large.cluster.gpus_per_node


def test_no_single_change_fits_a_model_that_is_far_too_large() -> None:
    run = made("llama3.1-405b", batch__seq_len=8192)
    assert memory_of(run).verdict == "OOM"
    assert advice_for(run) == ()


def test_pairs_are_advised_where_no_single_change_is_enough() -> None:
    """Mixtral at 24k tokens on 16 H100: no change alone frees enough, and two together do."""
    run = made("mixtral-8x7b", plan__dp=16, plan__ep=8, plan__zero=1, batch__seq_len=24576)
    found = advice_for(run)
    assert found and all(" and " in advice.kind for advice in found)
    for advice in found:
        mended = with_advice(run, advice)
        assert memory_of(mended).verdict == "FITS"
        assert mended.plan.tp * mended.plan.pp * mended.plan.cp * mended.plan.dp == 16


def test_a_run_at_risk_is_advised_what_surely_fits(too_large: TrainingRun) -> None:
    memory = memory_of(too_large)
    at_risk = replace(memory, capacity_bytes=memory.point_bytes * 1.01)
    assert at_risk.verdict == "AT RISK"
    assert all(advice.verdict == "FITS" for advice in advise(at_risk, step_us, step_us_before=step_us(too_large)))


def test_leaner_ways_to_hold_the_same_numbers_are_advised() -> None:
    tight = {"plan__tp": 4, "plan__sp": True, "plan__pp": 4, "plan__dp": 2, "plan__zero": 1, "batch__seq_len": 3584}
    run = made("llama3-70b", precision="fp8", **tight)
    primary = next(advice for advice in advice_for(run) if advice.kind == "fp8 primary weights")
    assert primary.settings == ("execution.fp8_weights=primary",)
    weights = memory_of(run).worst.parameters - memory_of(with_advice(run, primary)).worst.parameters
    assert primary.point_bytes_before - primary.point_bytes == pytest.approx(1.048 * weights)
    kinds = {advice.kind for advice in advice_for(made("llama3-70b", **tight))}
    assert "16-bit remainders of the master weights" in kinds


def test_a_base_in_four_bits_is_advised_beside_adapters_alone() -> None:
    tight = {"batch__seq_len": 1024, "batch__micro": 2, "cluster__hardware": "rtx-4090"}
    found = advice_for(made("llama3-8b", adapters__kind="lora", **tight))
    assert any("adapters.base=nf4" in advice.settings for advice in found)
    assert not any("adapters.base=nf4" in advice.settings for advice in advice_for(made("llama3-8b", **tight)))
