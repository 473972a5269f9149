"""The search: plans in the order of their floors, each priced in full until no floor is below the best found.

A floor is proved to be no more than the plan's own estimate (`predict.plan_search.floors`), so the answer is that of pricing every
plan. Plans are priced in rounds of a fixed length and judged when a round is over: the answer, and what is left out, do not
depend on how many workers there are, or on which of them is faster.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predict.memory.estimate import capacity_bytes
from predict.model.spec import LayerKind
from predict.plan_search.floors import (
    BlockTimes,
    block_times,
    kinds_of,
    lightest,
    memory_floors,
    sets_of_blocks,
    state_floors,
    time_floors,
)
from predict.plan_search.legal import MOST_ROWS, LeftOut, Space, run_of
from predict.plan_search.opening import Openings, opened, with_openings
from predict.plan_search.options import Objective
from predict.plan_search.pricing import Outcome, Workers, outcomes
from predict.run.model_flops import tokens_per_step
from predict.run.training_run import TrainingRun
from predict.schedules import registry
from predict.step.scheduling import Estimate
from regressors.features.arrays import Floats
from sampling.errors import UserError
from sampling.files.faults import as_written
from sampling.number_text import size

# Survey of a question: its legal plans, and those of them that memory does not rule out, before any is priced.

STATE = "memory: weights, gradients and optimizer state alone do not fit"
FLOOR = "memory: state and the activations of the forwards before the first backward do not fit"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Survey:
    """The plans of one question that may fit, with the memory that each needs at least."""

    space: Space
    """Those that may fit."""
    opening: Openings
    """The plans that each of them stands for."""
    legal: int
    memory_floors: Floats
    """Bytes per GPU, by plan."""
    capacity_bytes: float
    """What a plan may take of the device."""

    @property
    def plans(self) -> int:
        """The number of plans that may fit."""
        return int(self.opening.counts.sum())


def survey(legal: Space, *, max_memory: float, slowest_us: float = math.inf) -> Survey:
    """The survey of the legal plans, in which a plan may take the share `max_memory` of the device's memory; those whose layers alone take
    longer than `slowest_us`, the step of a plan that is known, are left out before their memory is counted."""
    capacity = capacity_bytes(legal.question.base.cluster.gpu) * max_memory
    space, opening = with_openings(legal)
    plans = int(opening.counts.sum())
    floors = np.zeros(len(space.rows))
    for measure, reason in ((state_floors, STATE), (memory_floors, FLOOR)):
        if measure is memory_floors and slowest_us < math.inf and len(space.rows):
            kinds = space.question.base.model.kinds()
            usual = max(set(kinds), key=kinds.count)
            near = _times_of_blocks(space, opening, Workers(jobs=1), only=usual) <= slowest_us
            space, opening, floors = _without_slower(space, opening, near), opening.of(near), floors[near]
        if not len(space.rows):
            break
        floors = measure(space, opening)
        fits = floors <= capacity
        if not fits.all():
            found = _misfits(space, fits, floors, capacity, int(opening.counts[~fits].sum()))
            space = replace(space.of(fits), left_out={**space.left_out, reason: found})
            opening = opening.of(fits)
        floors = floors[fits]
    return Survey(
        space=space,
        opening=opening,
        legal=plans,
        memory_floors=floors,
        capacity_bytes=capacity,
    )


def _without_slower(space: Space, opening: Openings, near: NDArray[np.bool_]) -> Space:
    """The space of the plans that may be fast enough; the others are counted by the reason."""
    if near.all():
        return space
    example = in_words(space.settings(int(np.flatnonzero(~near)[0])))
    found = LeftOut(count=int(opening.counts[~near].sum()), example=example)
    return replace(space.of(near), left_out={**space.left_out, SLOWER: found})


def _misfits(space: Space, fits: NDArray[np.bool_], floors: Floats, capacity: float, count: int) -> LeftOut:
    """The plans that do not fit, with the first as an example."""
    row = int(np.flatnonzero(~fits)[0])
    need = f"{size(floors[row])} at least of {size(capacity)}: {in_words(space.settings(row))}"
    return LeftOut(count=count, example=need)


SHORT: Mapping[str, str] = {
    "plan.recompute": "recomp",
    "plan.recompute_modules": "modules",
    "plan.count_embedding": "emb",
    "plan.count_loss": "loss",
    "plan.first_stage_layers": "first",
    "plan.last_stage_layers": "last",
}
"""Names of keys that are long for a table."""


def in_words(settings: Mapping[str, Any]) -> str:
    """The searched keys of a plan: `tp 4, pp 8, recompute full`."""
    return ", ".join(f"{path.partition('.')[2]} {as_written(value)}" for path, value in settings.items())


def settings_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their keys; those outside the plan under their whole paths."""
    return {path.removeprefix("plan."): value for path, value in settings.items()}


FIRST_ROUND, LONGEST_ROUND = 8, 256
"""Plans of the first round, which brings the first answer, and of a late one; each round is twice as long as the one before."""
BATCH = 8
"""Plans that a worker takes at a time."""
BLOCKS = 64
"""Sets of blocks that a worker takes at a time."""
SAME = 1e-9
"""Relative difference of figures that are the same but for rounding."""
SLOWER = "slower: the floor of its time is above the best ones found"
NOT_ENOUGH_MEMORY = "memory: the expected peak of the full estimate does not fit"
NOT_RUN = "schedule: it cannot run this plan"


def _but_for_rounding(value: float) -> float:
    """A value to SAME of itself, so that of plans which differ by rounding the one with less memory comes first."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa / SAME) * SAME, exponent) if math.isfinite(value) else value


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranked:
    """A plan that was priced in full and fits; a smaller key is better."""

    survey: int
    outcome: Outcome
    value: float

    @property
    def key(self) -> tuple[float, float, float, int, int]:
        outcome = self.outcome
        return _but_for_rounding(self.value), outcome.memory_bytes, outcome.step_us, self.survey, outcome.number

    def equals(self, other: Ranked) -> bool:
        """Whether both have one step time and memory, up to rounding, on one cluster."""
        own, others = self.outcome, other.outcome
        return (
            self.survey == other.survey
            and math.isclose(own.step_us, others.step_us, rel_tol=SAME)
            and math.isclose(own.memory_bytes, others.memory_bytes, rel_tol=SAME)
        )


@dataclass(kw_only=True, slots=True)
class Found:
    """The state of a search: the best plans, what it left out and why."""

    surveys: list[Survey]
    objective: Objective
    top: int
    estimate: Estimate
    ranked: list[Ranked] = field(default_factory=list)
    """All that were priced and fit, the best first."""
    alike: list[list[Ranked]] = field(default_factory=list)
    """The same, those together that have the same time and memory on one cluster: the settings in which they differ change nothing."""
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    known: dict[tuple[int, int], Outcome] = field(default_factory=dict)
    """Survey and plan → what its full estimate says; those of an earlier search may be there before they are asked for."""
    time_floors: list[Floats] = field(default_factory=list)
    """µs that each plan of each survey needs at least."""
    judged: set[tuple[int, int]] = field(default_factory=set)
    candidates: int = 0
    """Plans that are priced, unless their floors rule them out."""
    seconds: float = 0.0
    complete: bool = False

    @property
    def priced(self) -> int:
        """Plans whose full estimate was asked for."""
        return len(self.judged)

    @property
    def fit(self) -> int:
        """Plans that neither a floor nor a full estimate says to exceed the memory."""
        return sum(own.plans for own in self.surveys) - self.misfits

    @property
    def misfits(self) -> int:
        left = self.left_out.get(NOT_ENOUGH_MEMORY)
        return left.count if left else 0

    @property
    def best(self) -> Sequence[Ranked]:
        """The best plans; the first of those that have the same time and memory stands for all of them."""
        return [alike[0] for alike in self.alike[: self.top]]

    @property
    def threshold(self) -> float:
        """The value that a plan must undercut to be among the best."""
        return self.alike[self.top - 1][0].value if len(self.alike) >= self.top else float("inf")

    def run(self, ranked: Ranked) -> TrainingRun:
        return self.surveys[ranked.survey].space.run(ranked.outcome.number)

    def take_back(self, reason: str, count: int) -> None:
        """Plans that a reason left out, and that were priced after all."""
        if count:
            left = self.left_out[reason]
            self.left_out[reason] = replace(left, count=left.count - count)

    def leave_out(self, reason: str, count: int, example: str) -> None:
        if count:
            known = self.left_out.get(reason)
            found = LeftOut(count=count, example=example)
            self.left_out[reason] = known + found if known else found


Plan = tuple[int, int]
"""A plan, by survey and number."""
Valued = tuple[float, Plan]
"""The floor of a plan's objective, and the plan."""
OnRound = Callable[[Found], None]
"""Called after each round."""


def best_plans(
    surveys: Sequence[Survey],
    objective: Objective,
    estimate: Estimate,
    *,
    top: int,
    workers: Workers,
    on_round: OnRound = lambda found: None,
    known: Mapping[tuple[int, int], Outcome] | None = None,
) -> Found:
    """The best `top` plans, exactly. `known` are outcomes of an earlier search, by survey and plan.

    Ctrl-C ends it early, with what it has found so far.
    """
    started = time.monotonic()
    found = Found(surveys=list(surveys), objective=objective, top=top, estimate=estimate, known=dict(known or {}))
    for each in surveys:
        for reason, left in each.space.left_out.items():
            found.leave_out(reason, left.count, left.example)
    try:
        _search(found, workers, on_round, started)
        found.complete = True
    except KeyboardInterrupt:
        pass
    found.seconds = time.monotonic() - started
    return found


def _search(found: Found, workers: Workers, on_round: OnRound, started: float) -> None:
    found.time_floors = [_time_floors(each, workers) for each in found.surveys]
    floors = [_values(found.objective, own, times) for own, times in zip(found.surveys, found.time_floors, strict=True)]
    values = np.concatenate(floors)
    alone = np.concatenate([own.opening.single for own in found.surveys])
    survey_of = np.repeat(np.arange(len(floors)), [len(own) for own in floors])
    number_of = np.concatenate([np.arange(len(own)) for own in floors])
    # rows that stand for several plans come last, when what they have to undercut is known
    orders = [np.flatnonzero(rows)[np.argsort(values[rows], kind="stable")] for rows in (alone, ~alone)]
    for order in orders:
        for start, stop in _rounds(len(order)):
            chosen = order[start:stop]
            chosen = chosen[values[chosen] <= found.threshold]
            found.candidates = int((values <= found.threshold).sum())
            if not len(chosen):
                break
            plans = list(zip(survey_of[chosen].tolist(), number_of[chosen].tolist(), strict=True))
            for each in [plans] if order is orders[0] else _opened(found, plans, workers):
                price_plans(found, each, workers)
            found.seconds = time.monotonic() - started
            on_round(found)
    slower = sum(own.plans for own in found.surveys) - found.priced
    if slower:
        example = np.concatenate(orders)[-1]
        of = found.surveys[int(survey_of[example])]
        found.leave_out(SLOWER, slower, in_words(of.space.settings(int(number_of[example]))))


def _opened(found: Found, rows: Sequence[Plan], workers: Workers) -> Iterator[Sequence[Plan]]:
    """The plans that rows stand for, in rounds in the order of their floors; rows that still stand for several are opened in their turn."""
    left: list[Valued] = _open(found, rows, workers)
    length = FIRST_ROUND
    while left:
        left.sort()
        near, left = left[:length], left[length:]
        chosen = [plan for value, plan in near if value <= found.threshold]
        if not chosen:
            return
        several = [(of, plan) for of, plan in chosen if found.surveys[of].opening.several[plan]]
        left += _open(found, several, workers)
        yield [plan for plan in chosen if plan not in set(several)]
        length = min(2 * length, LONGEST_ROUND)


def _open(found: Found, plans: Sequence[Plan], workers: Workers) -> list[Valued]:
    """The rows that take the places of others, and that may fit, with their floors."""
    made: list[Valued] = []
    for of in sorted({of for of, _ in plans}):
        made += _open_survey(found, of, [plan for one, plan in plans if one == of], workers)
    return made


def _open_survey(found: Found, of: int, rows: Sequence[int], workers: Workers) -> list[Valued]:
    own = found.surveys[of]
    space, opening = opened(own.space, own.opening, rows)
    floors = memory_floors(space, opening)
    fits = floors <= own.capacity_bytes
    if not fits.all():
        misfits = _misfits(space, fits, floors, own.capacity_bytes, int(opening.counts[~fits].sum()))
        found.leave_out(FLOOR, misfits.count, misfits.example)
    more = replace(own, space=space.of(fits), opening=opening.of(fits), memory_floors=floors[fits])
    times = _time_floors(more, workers)
    before = len(own.space.rows)
    found.time_floors[of] = np.concatenate([found.time_floors[of], times])
    found.surveys[of] = replace(
        own,
        space=replace(own.space, rows=np.concatenate([own.space.rows, more.space.rows])),
        opening=own.opening.replaced(rows, more.opening),
        memory_floors=np.concatenate([own.memory_floors, more.memory_floors]),
    )
    values = _values(found.objective, more, times).tolist()
    return [(value, (of, before + number)) for number, value in enumerate(values)]


def open_all(found: Found, workers: Workers) -> None:
    """Put the plans that rows stand for in their places, for a question about all plans. UserError where they are too many."""
    for own in found.surveys:
        if own.plans > MOST_ROWS:
            raise UserError(
                f"plan.layout, plan.recompute_modules: auto makes {own.plans:,} plans, more than the {MOST_ROWS:,} whose front is "
                "looked for; fix one of them, or other keys of the plan"
            )
    while several := [
        (of, row) for of, own in enumerate(found.surveys) for row in np.flatnonzero(own.opening.several).tolist()
    ]:
        _open(found, several, workers)


def _rounds(count: int) -> Iterator[tuple[int, int]]:
    start, length = 0, FIRST_ROUND
    while start < count:
        yield start, min(count, start + length)
        start, length = start + length, min(2 * length, LONGEST_ROUND)


def _time_floors(own: Survey, workers: Workers) -> Floats:
    """The floor of each plan's step."""
    return _times_of_blocks(own.space, own.opening, workers)


def _times_of_blocks(space: Space, opening: Openings, workers: Workers, *, only: LayerKind | None = None) -> Floats:
    """The floor of each plan's step, or of its layers of one kind alone; 0 where layers are priced whole, as the framework `torch` runs
    them."""
    if not len(space.rows) or space.question.base.execution.whole_layers:
        return np.zeros(len(space.rows))
    representatives, of_row = sets_of_blocks(space, opening)
    any_modules = opening.any_modules[representatives].tolist()
    runs, kinds = [space.run(row) for row in representatives.tolist()], kinds_of(space)
    runs = [lightest(run) if any_of_them else run for run, any_of_them in zip(runs, any_modules, strict=True)]
    halves = any(registry.get(name).splits_backward for name in np.unique(space.column("plan.schedule")).tolist())
    of_blocks = partial(block_times, kinds=kinds, halves=halves, only=only)
    parts = workers.map(of_blocks, [(runs[start : start + BLOCKS],) for start in range(0, len(runs), BLOCKS)])
    return time_floors(space, BlockTimes(times=np.concatenate(parts), of_row=of_row), opening)


def _values(objective: Objective, own: Survey, times: Floats) -> Floats:
    """The floor of each plan's objective."""
    seq_lens = own.space.column("batch.seq_len")
    us_per_token = times / (own.space.column("batch.global") * seq_lens)
    values = np.zeros(len(times))
    for seq_len in np.unique(seq_lens).tolist():
        rows = seq_lens == seq_len
        run = run_of(own.space.question.base, {"batch.seq_len": seq_len})
        values[rows] = objective.value(run, us_per_token[rows], own.memory_floors[rows], None)
    return values


def price_plans(found: Found, plans: Sequence[tuple[int, int]], workers: Workers) -> None:
    """Price plans of a search, by survey and number, and put them in their places."""
    for number, own in enumerate(found.surveys):
        unknown = [plan for of, plan in plans if of == number and (of, plan) not in found.known]
        batches = [
            [(plan, own.space.settings(plan)) for plan in unknown[start : start + BATCH]]
            for start in range(0, len(unknown), BATCH)
        ]
        for made in workers.map(outcomes, [(found.estimate, own.space.question.base, batch) for batch in batches]):
            found.known.update({(number, outcome.number): outcome for outcome in made})
    for of, plan in plans:
        if (of, plan) not in found.judged:
            found.judged.add((of, plan))
            _judge(found, of, found.known[of, plan])
    found.ranked.sort(key=lambda ranked: ranked.key)
    found.alike = grouped(found.ranked)


def grouped(ranked: Sequence[Ranked]) -> list[list[Ranked]]:
    """The plans, the best first, with those that are equal together; as their values may differ by rounding, others may stand
    between them."""
    groups: list[list[Ranked]] = []
    for one in ranked:
        near = takewhile(lambda group: math.isclose(group[0].value, one.value, rel_tol=2 * SAME), reversed(groups))  # noqa: B023
        own = next((group for group in near if one.equals(group[0])), None)
        if own is None:
            groups.append([one])
        else:
            own.append(one)
    return groups


def _judge(found: Found, survey: int, outcome: Outcome) -> None:
    own = found.surveys[survey]
    plan = in_words(own.space.settings(outcome.number))
    if outcome.refusal:
        found.leave_out(NOT_RUN, 1, f"{outcome.refusal}: {plan}")
    elif outcome.memory_bytes > own.capacity_bytes:
        need = f"{size(outcome.memory_bytes)} of {size(own.capacity_bytes)}"
        found.leave_out(NOT_ENOUGH_MEMORY, 1, f"{need}: {plan}")
    else:
        run = own.space.run(outcome.number)
        value = found.objective.value(
            run, outcome.step_us / tokens_per_step(run), outcome.memory_bytes, outcome.board_w
        )
        found.ranked.append(Ranked(survey=survey, outcome=outcome, value=float(value)))
