"""Layouts and recomputed modules that are opened plan by plan: the answer is that of pricing every plan, and no floor lies above one."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

import predict
from predict import estimate
from predict.memory.estimate import capacity_bytes
from predict.plan_search.legal import Space, legal_plans
from predict.plan_search.options import OBJECTIVES
from predict.plan_search.pricing import Outcome, Workers, outcomes
from predict.plan_search.search import best_plans, survey
from predict.run.model_flops import tokens_per_step
from predict.run.stages import split_layers
from predict.run.training_run import TrainingRun
from sampling.errors import ConfigError, UserError
from sampling.files.places import CONFIGS
from tests.predict.command import Command
from tests.predict.plan_search.spaces import AUTO, in_full, plans_of, question


def model(name: str, **keys: Any) -> Mapping[str, Any]:
    return {**json.loads((CONFIGS / "models" / f"{name}.json").read_text()), **keys}


SMALL = model("llama3-8b", num_hidden_layers=6)
SPARSE = model("deepseek-v2-lite", num_hidden_layers=7)
FURTHER = model("deepseek-v3", num_hidden_layers=6, n_routed_experts=16, n_group=4, num_nextn_predict_layers=1)
OPEN: tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...] = (
    (SMALL, {"plan": {"pp": [1, 2, 3], "tp": [1, 2], "cp": 1, "vpp": 1, "zero": 1, "recompute": "none", "layout": AUTO}, "batch": {"micro": 1}}),
    (SMALL, {"plan": {"pp": 2, "tp": 1, "cp": 1, "vpp": [1, 2], "zero": 1, "recompute": ["full", "none"], "layout": AUTO}, "batch": {"micro": 1}}),
    (SPARSE, {"plan": {"pp": [1, 2], "tp": 1, "cp": 1, "ep": 2, "etp": 1, "vpp": 1, "zero": 1, "recompute": ["none", "selective"], "recompute_modules": AUTO}, "batch": {"micro": 2}}),
    (FURTHER, {"plan": {"pp": 3, "tp": 1, "cp": 1, "ep": 2, "etp": 1, "vpp": 1, "zero": 1, "recompute": "none", "layout": AUTO}, "batch": {"micro": 1}}),
    (SMALL, {"plan": {"pp": 3, "tp": 1, "cp": 1, "vpp": 1, "zero": 1, "recompute": "selective", "layout": AUTO, "recompute_modules": AUTO}, "batch": {"micro": 1}}),
    (SMALL, {"plan": {"pp": 2, "tp": 1, "cp": 1, "vpp": 1, "zero": 1, "schedule": "zb-h1", "recompute": ["full", "selective", "none"], "layout": AUTO}, "batch": {"micro": 1}}),
)  # fmt: skip
TOP = 3


@cache
def space_of(number: int) -> Space:
    of, content = OPEN[number]
    return legal_plans(question(of, 1, 12, {**content, "batch": {"global": 48, **content["batch"]}}))


@cache
def priced(number: int) -> tuple[Outcome, ...]:
    whole = in_full(space_of(number))
    return tuple(
        outcomes(estimate, whole.question.base, [(row, whole.settings(row)) for row in range(len(whole.rows))])
    )


@pytest.mark.parametrize("number", range(len(OPEN)))
@pytest.mark.parametrize(("objective", "share"), [("time", 1.0), ("time", 0.35), ("memory", 1.0)])
def test_the_answer_is_that_of_pricing_every_plan(number: int, objective: str, share: float) -> None:
    space, whole = space_of(number), in_full(space_of(number))
    capacity = capacity_bytes(space.question.base.cluster.gpu) * share
    found = best_plans(
        [survey(space, max_memory=share)], OBJECTIVES[objective], estimate, top=TOP, workers=Workers(jobs=1)
    )

    def value(one: Outcome) -> float:
        run = whole.run(one.number)
        return float(
            OBJECTIVES[objective].value(run, one.step_us / tokens_per_step(run), one.memory_bytes, one.board_w)
        )

    fitting = [one for one in priced(number) if not one.refusal and one.memory_bytes <= capacity]
    # plans of one time and memory count once
    distinct = {(round(one.step_us, 3), round(one.memory_bytes)): value(one) for one in fitting}
    assert [ranked.value for ranked in found.best] == pytest.approx(sorted(distinct.values())[:TOP])
    assert found.priced < len(whole.rows) or number == 3
    ruled_out = sum(left.count for left in found.left_out.values())
    assert ruled_out + len(found.ranked) == space.plans


@pytest.mark.parametrize("number", range(len(OPEN)))
def test_a_row_that_stands_for_plans_has_floors_below_theirs(number: int) -> None:
    surveyed = survey(space_of(number), max_memory=float("inf"))
    found = best_plans([surveyed], OBJECTIVES["time"], estimate, top=1, workers=Workers(jobs=1))
    by_rows = {in_full(space_of(number)).rows[one.number].tobytes(): one for one in priced(number)}
    for row in np.flatnonzero(surveyed.opening.several).tolist():
        own = [by_rows[each.tobytes()] for each in plans_of(surveyed.space, surveyed.opening, row)]
        assert len(own) == surveyed.opening.counts[row]
        assert 0 < surveyed.memory_floors[row] <= min(one.memory_bytes for one in own)
        assert 0 < found.time_floors[0][row] <= min(one.step_us for one in own)


def _splits(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    if stages == 1:
        yield (layers,)
        return
    for own in range(1, layers - stages + 2):
        for rest in _splits(layers - own, stages - 1):
            yield own, *rest


@pytest.mark.parametrize(("of", "pp", "vpp"), [(SMALL, 2, 1), (SMALL, 3, 1), (SMALL, 2, 2), (SPARSE, 3, 1)])
def test_no_other_split_of_the_layers_is_faster(of: Mapping[str, Any], pp: int, vpp: int) -> None:
    layers = of["num_hidden_layers"]
    plan = {"pp": pp, "tp": 1, "cp": 1, "vpp": vpp, "zero": 1, "recompute": "none"}
    content = {"batch": {"global": 48, "micro": 1}}
    chosen = legal_plans(question(of, 1, 6, {"plan": {**plan, "layout": AUTO}, **content}))
    every = [",".join(map(str, split)) for split in _splits(layers, pp * vpp)]
    all_splits = legal_plans(question(of, 1, 6, {"plan": {**plan, "layout": every}, **content}))
    best, best_of_all = (
        best_plans([survey(each, max_memory=1.0)], OBJECTIVES["time"], estimate, top=1, workers=Workers(jobs=1))
        .best[0]
        .value
        for each in (chosen, all_splits)
    )
    assert best <= best_of_all * (1 + 1e-9)


RUN = {"pp": 4, "zero": 1, "dp": 2}


def run_of(**plan: Any) -> TrainingRun:
    cluster = {"hardware": "h100-sxm", "nodes": 1, "gpus_per_node": 8, "profile": "none"}
    content = {
        "model": "llama3-8b",
        "cluster": cluster,
        "plan": RUN | plan,
        "batch": {"global": 32, "micro": 1, "seq_len": 4096},
        "precision": "bf16",
    }
    return predict.load(content)


def test_auto_of_one_run_is_the_layout_with_the_shortest_step_that_fits() -> None:
    even, chosen = predict.estimate(run_of()), predict.estimate(run_of(layout=AUTO))
    assert chosen.median_us < even.median_us
    layers = split_layers(32, 4, chosen.run.plan)
    assert layers[-1] < layers[1]
    assert predict.estimate(chosen.run).median_us == chosen.median_us


def test_auto_recomputes_as_little_as_fits() -> None:
    chosen = predict.estimate(run_of(recompute="selective", recompute_modules=AUTO))
    assert chosen.memory.feasible
    assert chosen.run.plan.recompute_modules == "layernorm"


def test_auto_goes_with_the_schedule_best() -> None:
    chosen = predict.estimate(run_of(layout=AUTO, schedule="best", vpp=2, pp=2, dp=4))
    assert chosen.run.plan.layout
    assert chosen.run.plan.schedule != "best"


def test_auto_that_does_not_fit_is_the_smallest() -> None:
    large = predict.estimate(run_of(pp=2, dp=4, layout=AUTO, zero=0))
    assert not large.memory.feasible


def test_auto_is_printed_as_what_was_chosen(command: Command) -> None:
    answer = command.text("one-batch", str(CONFIGS / "runs" / "llama3-70b-64xh100.yml"), "--set", "plan.layout=auto")
    assert "layout Et" in answer


def test_work_that_chooses_nothing_asks_for_a_value() -> None:
    with pytest.raises(UserError, match=r"plan\.layout: auto is chosen by time; give the value"):
        predict.launch_arguments(
            {
                "model": "llama3-8b",
                "cluster": {"hardware": "h100-sxm", "nodes": 1, "gpus_per_node": 8},
                "plan": RUN | {"layout": AUTO},
                "batch": {"global": 32, "micro": 1, "seq_len": 4096},
                "precision": "bf16",
            },
            "megatron-lm",
        )
    with pytest.raises(ConfigError, match="auto is chosen by an estimate"):
        split_layers(32, 4, run_of(layout=AUTO).plan)
