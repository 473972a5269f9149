"""A whole search, from a config of any kind with open keys to its answer: the path of `predict search` and of `predict.search` alike."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from predict import estimate
from predict.config.document import Config
from predict.kinds import KINDS, TRAINING, EnumeratedKind, kind, kind_of, refuse_server_options
from predict.ledger.training_cost import parse_price, parse_tokens, require_paid
from predict.plan_search.answer import Answer, RankedRows, answer, front, ranked_rows
from predict.plan_search.axes import Question, read_questions
from predict.plan_search.first_answer import FirstAnswer, expected_seconds, first_answer
from predict.plan_search.legal import legal_plans
from predict.plan_search.opening import number_of_plans
from predict.plan_search.options import OBJECTIVES, Backend, SearchOptions
from predict.plan_search.pricing import Workers
from predict.plan_search.saved_estimates import save, saved
from predict.plan_search.search import Found, Survey, best_plans, survey
from predict.plan_search.sweep import default_objective, none_can_run, opened_space, require_objective
from predict.plan_search.what_blocks import what_blocks
from predict.step.scheduling import Estimate
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
