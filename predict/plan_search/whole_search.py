"""A whole search, from a config of any kind with open keys to its answer: the path of `predict search` and of `predict.search` alike."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from predict import estimate
from predict.config.document import Config
from predict.kinds import KINDS, TRAINING, EnumeratedKind, kind, kind_of, refuse_server_options
from predict.ledger.training_cost import parse_price, parse_tokens, require_paid
from predict.memory.estimate import capacity_bytes
from predict.plan_search.answer import Answer, RankedRows, answer, front, ranked_rows
from predict.plan_search.axes import Question, read_questions
from predict.plan_search.floors import block_times, kinds_of, memory_floors, sets_of_blocks
from predict.plan_search.legal import Space, legal_plans
from predict.plan_search.opening import number_of_plans
from predict.plan_search.options import OBJECTIVES, Backend, SearchOptions
from predict.plan_search.pricing import FEWEST_BATCHES, Workers, outcomes
from predict.plan_search.saved_estimates import save, saved
from predict.plan_search.search import BATCH, BLOCKS, Found, Survey, best_plans, survey
from predict.plan_search.sweep import default_objective, none_can_run, opened_space, require_objective
from predict.plan_search.what_blocks import what_blocks
from predict.step.scheduling import Estimate
from regressors.features.arrays import Ints
from sampling.errors import Checks, UserError

Predicted = TypeVar("Predicted")
CONSIDERED = 20
"""Plans that are ranked at least, however few are asked for: one that fits surely may stand before faster ones that do not."""


class Listener:
    """Callbacks of a running search; each does nothing unless overridden."""

    def legal(self, plans: int, legal: int) -> None:
        """The number of plans, and of those that are legal."""

    def first(self, first: FirstAnswer) -> None:
        """A plan that fits, before the search proper."""

    def candidates(self, fit: int, seconds: float) -> None:
        """The number of plans that memory does not rule out, and the seconds that the search is expected to take from here."""

    def taken_over(self, estimates: int) -> None:
        """Estimates that the file of an earlier search had."""

    def round(self, found: Found) -> None:
        """The state after each round of plans."""

    def combination(self, done: int, count: int, name: str) -> None:
        """The number of combinations that are predicted, of how many, and an empty name, for a kind of config of which all are."""


def search(
    config: Config,
    overrides: Sequence[str] = (),
    *,
    objective: str | None = None,
    top: int = 20,
    clusters: Sequence[str] = (),
    max_memory: float = 1.0,
    max_gpus: int | None = None,
    min_interval_overlap: float | None = None,
    tokens: str | float | None = None,
    price: str | None = None,
    slo: Sequence[str] = (),
    model: str = "",
    coefficients: Path | str | None = None,
    front: bool = False,
    save: Path | str | None = None,
    jobs: int | None = None,
    backend: Backend = "processes",
    address: str | None = None,
    listener: Listener | None = None,
) -> Answer | RankedRows[Any]:
    """The best of all that a config of any kind leaves open: keys that are lists, ranges, `auto`, or left out.

    Of a training run, `.plans` are exactly the best plans, each with its settings, prediction and ratio to the best. Of an RL or a serving
    config every combination is predicted, and `.best` are the best. `.left_out` counts the others by reason. The parameters are those of
    the command, as `plan_search.options` describes them; `listener` is called on progress. ConfigError and UserError for bad input;
    InfeasibleError, with the smallest change that helps, where nothing fits.
    """
    search_options = SearchOptions(
        clusters=tuple(clusters),
        objective=objective,
        top=top,
        max_memory=max_memory,
        max_gpus=max_gpus,
        min_interval_overlap=min_interval_overlap,
        tokens=tokens,
        price=price,
        slo=tuple(slo),
        model=model,
        coefficients=coefficients,
        front=front,
        save=None if save is None else Path(save),
        jobs=jobs,
        backend=backend,
        address=address,
    )
    return whole_search(config, overrides, search_options, estimate, listener)


def whole_search(
    config: Config,
    overrides: Sequence[str],
    search_options: SearchOptions,
    estimate: Estimate,
    listener: Listener | None = None,
) -> Answer | RankedRows[Any]:
    """The answer of a search of any kind of config; `estimate` predicts training runs."""
    of = kind(kind_of(config))
    if isinstance(of, EnumeratedKind):
        return search_combinations(of, config, overrides, search_options, estimate, listener)
    return search_plans(config, overrides, search_options, estimate, listener)


def search_combinations(
    of: EnumeratedKind[Any, Predicted],
    config: Config,
    overrides: Sequence[str],
    search_options: SearchOptions,
    estimate: Estimate,
    listener: Listener | None = None,
) -> RankedRows[Predicted]:
    """The best combinations of a config, every one predicted. ConfigError and UserError for bad input; InfeasibleError where none can be
    chosen."""
    objective = search_options.objective or default_objective(of, search_options.price)
    with Checks() as checks:
        checks.run(search_options.require_no_plans, KINDS[of.name].title)
        checks.run(require_objective, of, objective, search_options.price)
        with checks.one():
            space = opened_space(of, config, overrides, estimate, search_options.of_servers)
    started = time.monotonic()
    swept = space.rows((listener or Listener()).combination)
    if not swept.best:
        raise none_can_run([row for row in swept.rows if not row.fits], space.option)
    seconds = time.monotonic() - started
    return ranked_rows(of, swept, objective, top=search_options.top, seconds=seconds)


def search_plans(
    config: Config,
    overrides: Sequence[str],
    search_options: SearchOptions,
    estimate: Estimate,
    listener: Listener | None = None,
) -> Answer:
    """The best plans of a training run, exactly; Ctrl-C ends it early with the best so far, if there is any, and `.complete` says so.

    ConfigError and UserError for bad input, InfeasibleError where no plan is legal and fits, with the smallest change that helps.
    """
    with Checks() as checks:
        checks.run(refuse_server_options, replace(search_options.of_servers, price=None))
        checks.run(require_objective, kind(TRAINING), search_options.objective, search_options.price)
        checks.run(require_paid, search_options.tokens, search_options.price)
    heard_by = listener or Listener()
    questions = _allowed(config, overrides, search_options)
    with Workers(search_options.backend, address=search_options.address, jobs=search_options.jobs) as workers:
        surveys = _surveys(questions, search_options, estimate, heard_by)
        found = _searched(surveys, search_options, estimate, workers, heard_by)
        if not found.best:
            if not found.complete:
                raise KeyboardInterrupt
            raise what_blocks(found, config, overrides, search_options.clusters, max_memory=search_options.max_memory)
        made = answer(
            found,
            top=search_options.top,
            tokens=None if search_options.tokens is None else parse_tokens(search_options.tokens),
            price=None if search_options.price is None else parse_price(search_options.price),
            min_overlap=search_options.min_interval_overlap,
        )
        if not (search_options.front and found.complete):
            return made
        try:
            return replace(made, front=front(found, workers))
        except KeyboardInterrupt:
            found.complete = False
            return made


def _allowed(config: Config, overrides: Sequence[str], search_options: SearchOptions) -> list[Question]:
    """The questions of the clusters that are not too large."""
    questions = read_questions(config, overrides, search_options.clusters)
    most = search_options.max_gpus
    allowed = [each for each in questions if most is None or each.base.cluster.world_size <= most]
    if not allowed:
        fewest = min(each.base.cluster.world_size for each in questions)
        raise UserError(
            f"--max-gpus: {most} is less than the smallest cluster, of {fewest}; raise it, or take a smaller one"
        )
    return allowed


def _surveys(
    questions: Sequence[Question], search_options: SearchOptions, estimate: Estimate, listener: Listener
) -> list[Survey]:
    """The plans of each question that may fit."""
    spaces = [legal_plans(each) for each in questions]
    listener.legal(sum(space.plans for space in spaces), sum(number_of_plans(space) for space in spaces))
    first = first_answer(spaces, estimate, max_memory=search_options.max_memory)
    if first:
        listener.first(first)
    surveys = [survey(space, max_memory=search_options.max_memory) for space in spaces]
    jobs = search_options.jobs or os.cpu_count() or 1
    fit = sum(own.plans for own in surveys)
    listener.candidates(fit, expected_seconds(surveys, estimate, jobs))
    return surveys


def _searched(
    surveys: Sequence[Survey], search_options: SearchOptions, estimate: Estimate, workers: Workers, listener: Listener
) -> Found:
    known = saved(search_options.save, surveys) if search_options.save else {}
    if known:
        listener.taken_over(len(known))

    def on_round(found: Found) -> None:
        if search_options.save:
            save(search_options.save, surveys, found.known)
        listener.round(found)

    objective = OBJECTIVES[search_options.objective or default_objective(kind(TRAINING), search_options.price)]
    considered = max(search_options.top, CONSIDERED)
    return best_plans(surveys, objective, estimate, top=considered, workers=workers, on_round=on_round, known=known)


# The first answer, before the search proper: a plan that fits, found in a second by trying those that are likely to, and the seconds
# that the search is expected to take.

MOST_FIRST_TRIES = 12
"""Plans that are estimated at most."""
SAMPLE = 400
"""Plans of a space that are looked at."""
LIKELY = 0.75
"""Share of the memory up to which a plan's floor makes it likely to fit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstAnswer:
    """A plan that fits."""

    settings: Mapping[str, Any]
    step_us: float


def first_answer(spaces: Sequence[Space], estimate: Estimate, *, max_memory: float) -> FirstAnswer | None:
    """A plan that fits, of those that are likely to: without recomputation before with it, and of the smallest tp · cp · pp.

    It looks at a part of each space; None where it finds none there.
    """
    for whole in spaces:
        if not len(whole.rows):
            continue
        space = whole.of(np.linspace(0, len(whole.rows) - 1, min(SAMPLE, len(whole.rows))).astype(np.int64))
        capacity = capacity_bytes(space.question.base.cluster.gpu) * max_memory
        floors = memory_floors(space)
        likely = np.flatnonzero(floors <= LIKELY * capacity)
        degrees = space.column("plan.tp") * space.column("plan.cp") * space.column("plan.pp")
        recomputes = space.column("plan.recompute") != "none"
        order = np.lexsort((floors[likely], degrees[likely], recomputes[likely]))
        for row in likely[order][:MOST_FIRST_TRIES].tolist():
            (outcome,) = outcomes(estimate, space.question.base, [(row, space.settings(row))])
            if not outcome.refusal and outcome.memory_bytes <= capacity:
                return FirstAnswer(settings=space.settings(row), step_us=outcome.step_us)
    return None


# Seconds that a search is expected to take, said before it starts: a few of its parts are timed, and counted up.

TIMED = 6
"""Estimates, and sets of blocks, of a space that are timed."""
ESTIMATES = 60
"""Plans that are priced in full: 30 to 100 for the 20 best of the searches in tests/bench/search.py."""
START_S = 2.0
"""Start of the worker processes."""


def expected_seconds(surveys: Sequence[Survey], estimate: Estimate, jobs: int) -> float:
    """The time of a search; 0 where no plan may fit."""
    spaces = [own.space for own in surveys if len(own.space.rows)]
    whole = [space for space in spaces if space.question.base.execution.whole_layers]
    if not spaces:
        return 0.0
    estimate_s = fmean(_estimate_s(space, estimate) for space in spaces)
    floors_s = sum(_floors_s(space, jobs) for space in spaces if space not in whole)
    plans = min(sum(len(space.rows) for space in spaces), ESTIMATES) + sum(len(space.rows) for space in whole)
    return floors_s + _shared_out(plans * estimate_s, plans // BATCH, jobs)


def _estimate_s(space: Space, estimate: Estimate) -> float:
    def price(row: int) -> None:
        outcomes(estimate, space.question.base, [(row, space.settings(row))])

    return _timed(price, np.arange(len(space.rows)))


def _floors_s(space: Space, jobs: int) -> float:
    """Seconds to price the sets of blocks that the floors of a space are made of."""
    representatives, _ = sets_of_blocks(space)
    kinds = kinds_of(space)
    of_set_s = _timed(lambda row: block_times([space.run(row)], kinds, halves=False), representatives)
    return _shared_out(len(representatives) * of_set_s, len(representatives) // BLOCKS, jobs)


def _shared_out(seconds: float, batches: int, jobs: int) -> float:
    """Seconds of work whose batches the processes share where they are worth their start."""
    return seconds if jobs == 1 or batches < FEWEST_BATCHES else min(seconds, START_S + seconds / jobs)


def _timed(work: Callable[[int], object], rows: Ints) -> float:
    """The mean time of work on some of the plans, spread over all."""
    chosen = rows[np.linspace(0, len(rows) - 1, min(TIMED, len(rows))).astype(int)]
    started = time.monotonic()
    for row in chosen.tolist():
        work(row)
    return (time.monotonic() - started) / len(chosen)
