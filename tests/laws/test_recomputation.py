"""Recomputation under every schedule: it costs the same work, and less memory where the weights' half of a backward is not far."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from predict.step.prediction import Prediction
from predict.step.scheduling import compare_schedules
from sampling.errors import ConfigError
from tests.predict.step.ledger_sums import assert_ledger_holds
from tests.predict.workload.parallel_runs import estimated, made

WHOLE: dict[str, int] = {"1f1b": 1, "interleaved-1f1b": 2}
"""Schedules by the chunks of a rank."""
SPLIT: dict[str, int] = {
    "zb-h1": 1,
    "zb-h2": 1,
    "zb-auto": 1,
    "interleaved-zb": 2,
    "zbv": 2,
    "zbv-greedy": 2,
    "v-half": 2,
    "v-min": 2,
    "dualpipe": 2,
    "dualpipev": 2,
}
EARLY = ("zbv", "zbv-greedy", "v-half", "v-min", "dualpipe", "dualpipev")
"""Those that hold most of a microbatch's activations before its B, as few wait for their W."""
RECOMPUTED: dict[str, dict[str, str]] = {
    "none": {},
    "selective": {"plan__recompute_modules": "layernorm, mla_up_proj, moe_act"},
    "ops": {},
    "full": {},
}
MIXTURE = {"plan__ep": 4, "model": "deepseek-v2-lite", "execution__expert_launch_us": 0}
"""Launches would hide kernels, those of half a backward more than those of a whole one."""
DENSE = {"model": "llama3-8b"}


@cache
def step(schedule: str, recompute: str, *, mixture: bool = False) -> Prediction:
    plan = {"plan__pp": 4, "plan__dp": 4, "plan__zero": 1, "plan__vpp": (WHOLE | SPLIT)[schedule]}
    of: dict[str, Any] = {**plan, **(MIXTURE if mixture else DENSE), **RECOMPUTED[recompute]}
    return estimated(made(**of, plan__schedule=schedule, plan__recompute=recompute, batch__global=64))


def work_us(prediction: Prediction) -> float:
    """Time that a mean rank computes."""
    return float(prediction.timeline.busy.mean())


@pytest.mark.parametrize("schedule", SPLIT)
def test_a_forward_that_is_repeated_takes_time(schedule: str) -> None:
    none, modules, every = (step(schedule, recompute, mixture=True) for recompute in ("none", "selective", "full"))
    assert none.median_us < modules.median_us < every.median_us
    assert_ledger_holds(every)


@pytest.mark.parametrize("mixture", [False, True], ids=["dense", "mixture"])
@pytest.mark.parametrize("schedule", SPLIT)
def test_the_halves_repeat_a_forward_as_often_as_the_whole_backward(schedule: str, mixture: bool) -> None:
    for recompute in ("selective", "ops", "full"):
        split, whole = (
            work_us(step(name, recompute, mixture=mixture)) - work_us(step(name, "none", mixture=mixture))
            for name in (schedule, "1f1b")
        )
        assert split == pytest.approx(whole, rel=0.02)
    again, once = (step(name, "full", mixture=mixture).breakdown_us["recompute"] for name in (schedule, "1f1b"))
    assert again == pytest.approx(once, rel=0.02)


@pytest.mark.parametrize("mixture", [False, True], ids=["dense", "mixture"])
@pytest.mark.parametrize("schedule", SPLIT)
def test_recomputation_takes_no_more_memory(schedule: str, mixture: bool) -> None:
    kept, modules, every = (
        step(schedule, recompute, mixture=mixture).memory.point_bytes for recompute in ("none", "selective", "full")
    )
    assert every <= kept
    assert modules <= kept
    if schedule in EARLY:
        assert every < 0.9 * kept


def test_the_later_a_rank_runs_its_weights_halves_the_less_recomputation_frees() -> None:
    """ZB-H1 holds as many activations on every rank, those of the last one between B and W: with recomputation the memory rises from rank to
    rank, as it did for a user of the authors' code (sail-sg/zero-bubble-pipeline-parallelism, issue 74)."""
    held = [rank.activations for rank in step("zb-h1", "full").memory.ranks]
    assert held == sorted(held)
    assert held[-1] > 1.5 * held[0]


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_w_needs_as_much_whichever_schedule_puts_it_off(recompute: str) -> None:
    """The same order from a file holds as much: that `zb-auto` counts half of an activation as released at B is its account of chunks."""
    solved = step("zb-auto", recompute)
    plan = replace(solved.run.plan, schedule="solved.csv")
    from_file = estimated(replace(solved.run, plan=plan, order=solved.timeline.order))
    assert [rank.activations for rank in solved.memory.ranks] == [rank.activations for rank in from_file.memory.ranks]


def test_the_best_schedule_of_a_recomputed_run_may_split_its_backward() -> None:
    found, _ = compare_schedules(step("1f1b", "full").run, ("1f1b", "zb-h1"), estimated)
    assert [(outcome.name, outcome.why_not) for outcome in found] == [("zb-h1", None), ("1f1b", None)]


def test_torchs_runtime_repeats_a_forward_for_each_weight_and_is_refused() -> None:
    settings: dict[str, Any] = {"plan__pp": 4, "plan__recompute": "full", "execution__framework": "torchtitan"}
    with pytest.raises(
        ConfigError, match=r"^test: plan.recompute: full does not go with zb-h1, .* again for each weight in W"
    ):
        made(**settings, plan__schedule="zb-h1")
    (whole,) = (one for one in compare_schedules(made(**settings), ("zb-h1",), estimated)[0])
    assert whole.why_not and "torch's runtime" in whole.why_not
