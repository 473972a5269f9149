"""The legal plans of a question: rows of indices into its axes, kept by every rule of a config.

Axes are joined one at a time. A rule is held against the rows as soon as all values that it needs are there, once for each
distinct combination of them, so that a space of millions takes seconds; what it rules out is counted, with an example.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predict.config.rules import RULES
from predict.config.rules.rule import Rule
from predict.plan_search.space.axes import Axis, Question
from predict.plan_search.space.distinct import distinct
from predict.plan_search.space.reasons import reason_of
from predict.plan_search.space.same_plan import same_plan_rules
from predict.run.training_run import TrainingRun
from predict.step.scheduling import with_schedule
from sampling.errors import UserError

Rows = NDArray[np.int16]
"""Plans as (plans, axes) indices into the values of each axis."""
MOST_ROWS = 20_000_000
"""Rows in memory at once, 0.5 GB."""
FIELD_NAMES = {"global": "global_"}


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """The number of plans that a reason leaves out, and the message about one of them."""

    count: int
    example: str

    def __add__(self, other: LeftOut) -> LeftOut:
        return LeftOut(count=self.count + other.count, example=self.example)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Space:
    """The plans of a question."""

    question: Question
    plans: int
    """All combinations of the values."""
    rows: Rows
    """The legal ones."""
    left_out: Mapping[str, LeftOut]
    """Reason → the others."""

    def settings(self, row: int) -> dict[str, Any]:
        """Key path → value of a legal plan, for each axis."""
        chosen = zip(self.question.axes, self.rows[row].tolist(), strict=True)
        return {axis.path: axis.values[index] for axis, index in chosen}

    def run(self, row: int) -> TrainingRun:
        return run_of(self.question.base, self.settings(row))

    def column(self, path: str) -> NDArray[Any]:
        """The values of one key, by plan; one value where it is not searched."""
        section, _, key = path.partition(".")
        for place, axis in enumerate(self.question.axes):
            if axis.path == path:
                return np.array(axis.values)[self.rows[:, place]]
        own = getattr(getattr(self.question.base, section), FIELD_NAMES.get(key, key))
        return np.full(len(self.rows), own)

    def indices(self, paths: Iterable[str]) -> list[NDArray[np.int16]]:
        """The columns of those of the keys that are searched."""
        places = {axis.path: place for place, axis in enumerate(self.question.axes)}
        return [self.rows[:, places[path]] for path in paths if path in places]

    def of(self, rows: NDArray[Any]) -> Space:
        """Some of the legal plans, by index or by whether they are taken; nothing is said of the others."""
        return replace(self, rows=self.rows[rows])


def run_of(base: TrainingRun, settings: Mapping[str, Any]) -> TrainingRun:
    """The base with other values of its plan, batch and execution, which keep the rules of a config."""
    sections: dict[str, dict[str, Any]] = {}
    for path, value in settings.items():
        section, _, key = path.partition(".")
        sections.setdefault(section, {})[FIELD_NAMES.get(key, key)] = value
    run = replace(base, **{section: replace(getattr(base, section), **values) for section, values in sections.items()})
    schedule = settings.get("plan.schedule")
    return with_schedule(run, schedule) if schedule else run


def legal_plans(question: Question) -> Space:
    """The space of a question. UserError where more plans than MOST_ROWS would be held at once."""
    axes = question.axes
    sizes = [len(axis.values) for axis in axes]
    rows: Rows = np.zeros((1, 0), np.int16)
    left_out: dict[str, LeftOut] = {}
    pending = list(_rules(question))
    for joined in range(len(axes) + 1):
        if joined:
            rows = _joined(rows, axes[joined - 1])
        names = {axis.name: place for place, axis in enumerate(axes[:joined])}
        later = {axis.name for axis in axes[joined:]}
        ready = [rule for rule in pending if not later.intersection(rule.needs)]
        pending = [rule for rule in pending if rule not in ready]
        for rule in ready:
            kept, example = _kept(rule, rows, axes, names, question.values)
            dropped = int(len(rows) - kept.sum())
            if dropped:
                found = LeftOut(count=dropped * math.prod(sizes[joined:]), example=example)
                reason = reason_of(rule)
                left_out[reason] = left_out[reason] + found if reason in left_out else found
                rows = rows[kept]
    return Space(question=question, plans=math.prod(sizes), rows=rows, left_out=left_out)


def _rules(question: Question) -> Iterator[Rule]:
    names = {axis.name for axis in question.axes}
    for rule in (*RULES, *same_plan_rules(question.axes)):
        if all(need in names or need in question.values for need in rule.needs):
            yield rule


def _joined(rows: Rows, axis: Axis) -> Rows:
    """Each row with each value of one more axis."""
    values = len(axis.values)
    if len(rows) * values > MOST_ROWS:
        raise UserError(
            f"{axis.path}: {len(rows):,} plans so far with {values} values each are more than the {MOST_ROWS:,} that are held "
            "at once; fix a key, or give a shorter list"
        )
    repeated = np.repeat(rows, values, axis=0)
    own = np.tile(np.arange(values, dtype=np.int16), len(rows))
    return np.concatenate([repeated, own[:, None]], axis=1)


def _kept(
    rule: Rule, rows: Rows, axes: Sequence[Axis], places: Mapping[str, int], base: Mapping[str, Any]
) -> tuple[NDArray[np.bool_], str]:
    """Whether each row keeps the rule, and the message about the first that does not."""
    used = [places[need] for need in rule.needs if need in places]
    first, inverse = distinct([rows[:, place] for place in used], len(rows))
    keeps, example = np.ones(len(first), dtype=bool), ""
    for number, row in enumerate(rows[first][:, used].tolist()):
        chosen = dict(zip(used, row, strict=True))
        values = [
            axes[places[need]].values[chosen[places[need]]] if need in places else base[need] for need in rule.needs
        ]
        for problem in rule.check(*values):
            keeps[number] = False
            example = example or f"{rule.path}: {problem}"
            break
    return keeps[inverse], example
