"""The search gives the answer of pricing every legal plan, whatever the objective, and no floor lies above an estimate."""

import itertools
import random
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from predict import estimate
from predict.memory.estimate import capacity_bytes
from predict.plan_search.axes import Question
from predict.plan_search.floors import (
    BlockTimes,
    block_times,
    kinds_of,
    memory_floors,
    sets_of_blocks,
    state_floors,
    time_floors,
)
from predict.plan_search.legal import Space, legal_plans
from predict.plan_search.options import OBJECTIVES
from predict.plan_search.pricing import Outcome, Workers, outcomes
from predict.plan_search.search import Found, Ranked, best_plans, grouped, survey
from predict.run.model_flops import tokens_per_step
from tests.predict.plan_search.spaces import DENSE, MIXED, in_full, question

SPACES = [
    *((model, 1, content) for model, content in zip(itertools.cycle(("llama3-8b", "gpt2")), DENSE, strict=False)),
    *(
        (model, 2, content)
        for model, content in zip(itertools.cycle(("qwen3-30b-a3b", "deepseek-v2-lite")), MIXED, strict=False)
    ),
]
"""One model after the other, each with another space."""
TOP = 5
MOST_PRICED = 24
"""Legal plans of a space that are priced one by one; of larger spaces, some at random."""


@cache
def made(number: int) -> Question:
    model, nodes, content = SPACES[number]
    return question(model, nodes, 8, content)


@cache
def thinned(number: int) -> Space:
    """The legal plans, or as many of them as can be priced in a test."""
    space = in_full(legal_plans(made(number)))
    rows = sorted(random.Random(number).sample(range(len(space.rows)), min(MOST_PRICED, len(space.rows))))
    return space.of(rows)


@cache
def estimates(number: int) -> tuple[Outcome, ...]:
    space = thinned(number)
    return tuple(
        outcomes(estimate, space.question.base, [(row, space.settings(row)) for row in range(len(space.rows))])
    )


@pytest.mark.parametrize("number", range(len(SPACES)))
def test_no_floor_is_above_the_estimate(number: int) -> None:
    space = thinned(number)
    assert len(space.rows) >= 6
    representatives, of_row = sets_of_blocks(space)
    times = block_times([space.run(row) for row in representatives.tolist()], kinds_of(space), halves=True)
    floors = time_floors(space, BlockTimes(times=times, of_row=of_row))
    states, memories = state_floors(space), memory_floors(space)
    for outcome in estimates(number):
        if not outcome.refusal:
            assert 0 < floors[outcome.number] <= outcome.step_us, space.settings(outcome.number)
            assert 0 < states[outcome.number] <= memories[outcome.number] * (1 + 1e-9)
            assert memories[outcome.number] <= outcome.memory_bytes, space.settings(outcome.number)


@pytest.mark.parametrize("number", range(len(SPACES)))
@pytest.mark.parametrize("objective", ["time", "memory", "energy"])
def test_the_answer_is_that_of_pricing_every_plan(number: int, objective: str) -> None:
    space, share = thinned(number), 0.5
    surveyed = survey(space, max_memory=share)
    found = best_plans([surveyed], OBJECTIVES[objective], estimate, top=TOP, workers=Workers(jobs=1))
    assert [surveyed.space.settings(ranked.outcome.number) for ranked in found.best] == list(
        _by_hand(number, objective, capacity_bytes(space.question.base.cluster.gpu) * share)
    )
    assert found.complete
    assert sorted((one for alike in found.alike for one in alike), key=lambda one: one.key) == found.ranked
    ruled_out = sum(left.count for left in found.left_out.values()) - sum(
        left.count for left in space.left_out.values()
    )
    assert ruled_out + len(found.ranked) == len(space.rows)


def _by_hand(number: int, objective: str, capacity: float) -> Iterator[Mapping[str, Any]]:
    space = thinned(number)
    fitting = [one for one in estimates(number) if not one.refusal and one.memory_bytes <= capacity]

    def key(one: Outcome) -> tuple[float, ...]:
        run = space.run(one.number)
        value = OBJECTIVES[objective].value(run, one.step_us / tokens_per_step(run), one.memory_bytes, one.board_w)
        return float(f"{value:.8e}"), one.memory_bytes, one.step_us, one.number

    kept: list[Outcome] = []
    for one in sorted(fitting, key=key):
        figures = (one.step_us, one.memory_bytes)
        if all(figures != pytest.approx((other.step_us, other.memory_bytes), rel=1e-9) for other in kept):
            kept.append(one)
    yield from (space.settings(one.number) for one in kept[:TOP])


def test_plans_that_are_the_same_stand_together_though_another_is_between_them() -> None:
    """Rounding of their times puts a plan of another memory between two of the same."""
    ranked = [
        Ranked(survey=0, outcome=Outcome(number=number, step_us=step_us, memory_bytes=memory_bytes), value=step_us)
        for number, (step_us, memory_bytes) in enumerate([(1.0, 5.0), (1 + 1e-15, 7.0), (1 + 2e-15, 5.0), (1.1, 5.0)])
    ]
    groups = [[one.outcome.number for one in group] for group in grouped(ranked)]
    assert groups == [[0, 2], [1], [3]]


def test_of_plans_that_differ_by_rounding_the_one_with_less_memory_comes_first() -> None:
    figures = ((1 + 1e-15, 5.0), (1.0, 7.0), (1 - 1e-6, 9.0))
    ranked = [
        Ranked(survey=0, outcome=Outcome(number=number, step_us=step_us, memory_bytes=memory_bytes), value=step_us)
        for number, (step_us, memory_bytes) in enumerate(figures)
    ]
    assert [one.outcome.number for one in sorted(ranked, key=lambda one: one.key)] == [2, 0, 1]


def test_an_interrupted_search_keeps_the_best_so_far() -> None:
    def interrupt(found: Found) -> None:
        raise KeyboardInterrupt

    surveyed = survey(thinned(0), max_memory=1.0)
    found = best_plans([surveyed], OBJECTIVES["time"], estimate, top=TOP, workers=Workers(jobs=1), on_round=interrupt)
    assert not found.complete
    assert found.priced == len(found.ranked) + found.misfits > 0
    assert found.best[0] == min(found.ranked, key=lambda ranked: ranked.key)
