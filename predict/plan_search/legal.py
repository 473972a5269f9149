"""The legal plans of a question: rows of indices into its axes, kept by every rule of a config.

Axes are joined one at a time. A rule is held against the rows as soon as all values that it needs are there, once for each
distinct combination of them, so that a space of millions takes seconds; what it rules out is counted, with an example.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predict.config.rules import RULES
from predict.config.rules.rule import Problems, Rule
from predict.model.spec import ModelSpec
from predict.plan_search.axes import Axis, Question
from predict.run.training_run import TrainingRun
from predict.step.scheduling import with_schedule
from regressors.features.arrays import Ints
from sampling.errors import UserError

# Plans that are the same as another one of the space: a key differs that says nothing there.


@dataclass(frozen=True, kw_only=True, slots=True)
class Silence:
    """The condition under which a key says nothing, in words and as a function of the values that it needs."""

    path: str
    because: str
    needs: tuple[str, ...]
    holds: Callable[..., bool]
    stand_in: Any = None
    """The value that stands for all; None for the first of the axis."""


def _no_exchange(ep: int, etp: int, model: ModelSpec) -> bool:
    return model.experts is None or ep * etp == 1


SILENCES = (
    Silence(path="plan.cp_method", because="cp is 1", needs=("cp",), holds=lambda cp: cp == 1),
    Silence(path="plan.shard", because="zero is 0", needs=("zero",), holds=lambda zero: zero == 0),
    Silence(
        path="plan.shard",
        because="these are all replicas",
        needs=("shard", "dp", "cp"),
        holds=lambda shard, dp, cp: shard == dp * cp,
        stand_in=0,
    ),
    Silence(
        path="plan.recompute_modules",
        because="recompute is not selective",
        needs=("recompute",),
        holds=lambda recompute: recompute != "selective",
    ),
    *(
        Silence(path=path, because="pp is 1", needs=("pp",), holds=lambda pp: pp == 1)
        for path in ("plan.count_embedding", "plan.count_loss", "execution.overlap_p2p", "execution.split_p2p")
    ),
    Silence(path="execution.overlap_tp", because="tp is 1", needs=("tp",), holds=lambda tp: tp == 1),
    *(
        Silence(path=path, because="experts are not spread", needs=("ep", "etp", "model"), holds=_no_exchange)
        for path in ("execution.dispatch", "execution.overlap_ep")
    ),
    Silence(
        path="execution.overlap_ep",
        because="one microbatch has no other beside it",
        needs=("overlap_ep", "global", "micro", "dp"),
        holds=lambda overlap_ep, batch, micro, dp: overlap_ep == "microbatch" and batch == micro * dp,
        stand_in="none",
    ),
    Silence(
        path="plan.schedule",
        because="interleaved 1F1B of one chunk is 1F1B",
        needs=("vpp", "schedule"),
        holds=lambda vpp, schedule: vpp == 1 and schedule == "interleaved-1f1b",
        stand_in="1f1b",
    ),
)
"""Whichever value a key has under its condition, the run is the same: one of its values stands for all."""


def same_plan_rules(axes: Sequence[Axis]) -> list[Rule]:
    """Rules that leave one of the plans that are the same, for the axes that are searched."""
    by_path: Mapping[str, Axis] = {axis.path: axis for axis in axes if len(axis.values) > 1}
    silent = [silence for silence in SILENCES if silence.path in by_path]
    return [
        _rule(silence, axis, axis.values[0] if silence.stand_in is None else silence.stand_in)
        for silence in silent
        for axis in (by_path[silence.path],)
        if silence.stand_in is None or silence.stand_in in axis.values
    ]


def _rule(silence: Silence, axis: Axis, stand_in: Any) -> Rule:
    def check(*values: Any) -> Problems:
        own, *needed = values
        if own != stand_in and silence.holds(*needed):
            yield f"{own}; {stand_in} stands for both"

    reason = f"the same plan as another one, since {silence.because}"
    return Rule(path=axis.path, reason=reason, needs=(axis.name, *silence.needs), check=check)


# Distinct rows of columns of small whole numbers, found by counting where that is faster than sorting.

MOST_CODES = 2**24
"""Combinations up to which a table has a place for each."""
ROOMY = 20
"""Places per row beyond which a table takes longer to clear than its rows to sort."""


def distinct(columns: Sequence[NDArray[Any]], count: int) -> tuple[Ints, Ints]:
    """The first row of each distinct combination, ordered as the columns are, and which combination each of `count` rows has.

    Columns are whole numbers from 0.
    """
    code, codes = np.zeros(count, np.int64), 1
    for column in columns:
        width = int(column.max(initial=0)) + 1
        if codes * width > MOST_CODES:
            _, code = _numbered(code, codes)
            codes = int(code.max(initial=0)) + 1
        code = code * width + column
        codes *= width
    return _numbered(code, codes)


def _numbered(code: Ints, codes: int) -> tuple[Ints, Ints]:
    """The first row of each code that occurs, and the code's place among those that do."""
    if codes > ROOMY * len(code) + 1:
        _, firsts, places = np.unique(code, return_index=True, return_inverse=True)
        return firsts, places
    first = np.full(codes, -1, np.int64)
    first[code[::-1]] = np.arange(len(code) - 1, -1, -1)
    present = first >= 0
    return first[present], (np.cumsum(present) - 1)[code]


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
    made: dict[Any, Any] = field(default_factory=dict, repr=False)
    """What was made of plans, by the indices of the values that it depends on: spaces of the same question share it."""

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
        # each row stands for the values of the axes that follow, and of those that are opened plan by plan
        each = math.prod(size for size, axis in zip(sizes, axes, strict=True) if axis.by_plan or axis in axes[joined:])
        names = {axis.name: place for place, axis in enumerate(axes[:joined])}
        later = {axis.name for axis in axes[joined:]}
        ready = [rule for rule in pending if not later.intersection(rule.needs)]
        pending = [rule for rule in pending if rule not in ready]
        for rule in ready:
            kept, example = _kept(rule, rows, axes, names, question.values)
            dropped = int(len(rows) - kept.sum())
            if dropped:
                found = LeftOut(count=dropped * each, example=example)
                reason = f"{rule.path}: {rule.reason}"
                left_out[reason] = left_out[reason] + found if reason in left_out else found
                rows = rows[kept]
    return Space(question=question, plans=math.prod(sizes), rows=rows, left_out=left_out)


def _rules(question: Question) -> Iterator[Rule]:
    names = {axis.name for axis in question.axes}
    for rule in (*RULES, *same_plan_rules(question.axes)):
        if all(need in names or need in question.values for need in rule.needs):
            yield rule


def _joined(rows: Rows, axis: Axis) -> Rows:
    """Each row with each value of one more axis, or with the one that stands for all."""
    values = 1 if axis.by_plan else len(axis.values)
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
