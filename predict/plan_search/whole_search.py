"""A whole search, from a config with open keys to its answer: the path of `predict search` and of `predict.search` alike."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from predict.config.document import Document
from predict.ledger.training_cost import parse_price, parse_tokens
from predict.plan_search.answer.pareto import front
from predict.plan_search.answer.ranking import Answer, answer
from predict.plan_search.expected import expected_seconds
from predict.plan_search.first import FirstAnswer, first_answer
from predict.plan_search.infeasible import what_blocks
from predict.plan_search.objective import OBJECTIVES
from predict.plan_search.pricing.workers import Workers
from predict.plan_search.saved import save, saved
from predict.plan_search.search import Found, search
from predict.plan_search.space.axes import Question, read_questions
from predict.plan_search.space.legal import legal_plans
from predict.plan_search.survey import Survey, survey
from predict.plan_search.wishes import Wishes
from predict.step.scheduling import Estimate
from sampling.errors import UserError


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


def whole_search(
    config: Path | str | Document,
    overrides: Sequence[str],
    wishes: Wishes,
    estimate: Estimate,
    listener: Listener | None = None,
) -> Answer:
    """The answer of a search; Ctrl-C ends it early with the best so far, if there is any, and `found.complete` says so.

    ConfigError and UserError for bad input, InfeasibleError where no plan is legal and fits, with the smallest change that helps.
    """
    told = listener or Listener()
    questions = _allowed(config, overrides, wishes)
    with Workers(wishes.backend, address=wishes.address, jobs=wishes.jobs) as workers:
        surveys = _surveys(questions, wishes, estimate, told)
        found = _searched(surveys, wishes, estimate, workers, told)
        if not found.best:
            if not found.complete:
                raise KeyboardInterrupt
            raise what_blocks(found, config, overrides, wishes.clusters, max_memory=wishes.max_memory)
        made = answer(
            found,
            tokens=parse_tokens(wishes.tokens) if wishes.tokens else None,
            price=parse_price(wishes.price) if wishes.price else None,
            min_overlap=wishes.min_interval_overlap,
        )
        if not (wishes.front and found.complete):
            return made
        try:
            return replace(made, front=front(found, workers))
        except KeyboardInterrupt:
            found.complete = False
            return made


def _allowed(config: Path | str | Document, overrides: Sequence[str], wishes: Wishes) -> list[Question]:
    """The questions of the clusters that are not too large."""
    questions = read_questions(config, overrides, wishes.clusters)
    most = wishes.max_gpus
    allowed = [each for each in questions if most is None or each.base.cluster.world_size <= most]
    if not allowed:
        fewest = min(each.base.cluster.world_size for each in questions)
        raise UserError(
            f"--max-gpus: {most} is less than the smallest cluster, of {fewest}; raise it, or take a smaller one"
        )
    return allowed


def _surveys(questions: Sequence[Question], wishes: Wishes, estimate: Estimate, listener: Listener) -> list[Survey]:
    """The plans of each question that may fit."""
    spaces = [legal_plans(each) for each in questions]
    listener.legal(sum(space.plans for space in spaces), sum(len(space.rows) for space in spaces))
    first = first_answer(spaces, estimate, max_memory=wishes.max_memory)
    if first:
        listener.first(first)
    surveys = [survey(space, max_memory=wishes.max_memory) for space in spaces]
    jobs = wishes.jobs or os.cpu_count() or 1
    fit = sum(len(own.space.rows) for own in surveys)
    listener.candidates(fit, expected_seconds(surveys, estimate, jobs))
    return surveys


def _searched(
    surveys: Sequence[Survey], wishes: Wishes, estimate: Estimate, workers: Workers, listener: Listener
) -> Found:
    known = saved(wishes.save, surveys) if wishes.save else {}
    if known:
        listener.taken_over(len(known))

    def tell(found: Found) -> None:
        if wishes.save:
            save(wishes.save, surveys, found.known)
        listener.round(found)

    objective = OBJECTIVES[wishes.objective]
    return search(surveys, objective, estimate, top=wishes.top, workers=workers, tell=tell, known=known)
