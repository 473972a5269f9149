"""Keys with so many values that a search opens them plan by plan: the layouts of a pipeline, and the sets of recomputed modules.

Beside each plan with the first value of each such key, a row of the space stands for the plans with all others. Its floors hold whichever
is chosen; once they are among the least that are left, the plans take its place, so that the answer is that of pricing every one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from predict.plan_search.axes import Axis
from predict.plan_search.legal import LeftOut, Rows, Space, distinct
from predict.run.stages import stages_in
from predict.schedules import registry
from regressors.features.arrays import Ints

LAYOUT, MODULES = "plan.layout", "plan.recompute_modules"
PIPELINE = ("plan.pp", "plan.vpp", "plan.schedule")
OTHER_SPLITS = ("plan.first_stage_layers", "plan.last_stage_layers", "plan.count_embedding", "plan.count_loss")
"""Keys that split the layers in another way; a plan that has one has no layout."""
NOTHING, ITSELF, OTHER_MODULES, ALL_MODULES = range(4)
"""Sorts of rows: one that its plans replaced, one of them, and one of a layout with any other set of modules, or with any set."""
AS_IT_IS = -1
"""Stands for the row's own value."""
MISFIT = "plan.layout: the layout does not fit the layers and the stages"
SILENT = "plan.recompute_modules: the same plan as another one, since recompute is not selective"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Openings:
    """The plans that each row of a space stands for."""

    values: Sequence[Rows]
    """Indices into the values of the axes that are opened, shape (plans, axes), of each sort of row."""
    of_row: Ints
    """The sort of each row."""
    any_layout: NDArray[np.bool_]
    """Whether a row stands for several layouts."""
    any_modules: NDArray[np.bool_]
    """Whether a row stands for several sets of modules."""

    @property
    def counts(self) -> Ints:
        """The number of plans that each row stands for."""
        sizes = np.array([len(values) for values in self.values], dtype=np.int64)
        return sizes[self.of_row]

    def of(self, rows: NDArray[np.bool_]) -> Openings:
        """Those of some of the rows."""
        return replace(
            self,
            of_row=self.of_row[rows],
            any_layout=self.any_layout[rows],
            any_modules=self.any_modules[rows],
        )

    @property
    def single(self) -> NDArray[np.bool_]:
        """Whether a row is a plan by itself."""
        return np.asarray(self.of_row == ITSELF)

    @property
    def several(self) -> NDArray[np.bool_]:
        """Whether a row stands for plans that may take its place."""
        return np.asarray(self.of_row > ITSELF)

    def of_sorts(self, sorts: Ints) -> Openings:
        """Those of rows of a layout, by their sorts."""
        return replace(
            self, of_row=sorts, any_layout=np.zeros(len(sorts), dtype=bool), any_modules=np.asarray(sorts > ITSELF)
        )

    def replaced(self, rows: Sequence[int], others: Openings) -> Openings:
        """Those of the rows, some of which stand for nothing any more, and of those that take their places."""
        of_row = self.of_row.copy()
        of_row[list(rows)] = NOTHING
        return replace(
            self,
            of_row=np.concatenate([of_row, others.of_row]),
            any_layout=np.concatenate([self.any_layout, others.any_layout]),
            any_modules=np.concatenate([self.any_modules, others.any_modules]),
        )


def with_openings(space: Space) -> tuple[Space, Openings]:
    """The legal plans, followed by the rows that stand for plans that differ from one of them in the keys that are opened."""
    axes = [axis for axis in space.question.axes if axis.by_plan]
    by_path = {axis.path: axis for axis in axes}
    layouts, layout_of = _layouts(space, by_path.get(LAYOUT))
    selective = np.asarray(space.column("plan.recompute") == "selective")
    modules = len(by_path[MODULES].values) if MODULES in by_path else 1
    own_layout = [[index if axis.path == MODULES else AS_IT_IS for axis in axes] for index in range(modules)]
    sorts = [
        _table([], axes),
        _table([[AS_IT_IS] * len(axes)], axes),
        _table(own_layout[1:], axes),
        _table(own_layout, axes),
    ]
    for own, takes in product(layouts, (False, True)):
        values = list(product(*(_indices(axis, own, modules if takes else 1) for axis in axes)))
        sorts.append(_table(values[1:], axes))
    fitting = np.array([len(own) for own in layouts])[layout_of]
    all_layouts = len(by_path[LAYOUT].values) if LAYOUT in by_path else 1
    legal = np.arange(len(space.rows))
    several = np.flatnonzero((fitting > 1) | (selective & (modules > 1)))
    none = np.zeros(len(legal), dtype=bool)
    opening = Openings(
        values=sorts,
        of_row=np.concatenate([np.full(len(legal), ITSELF), (ALL_MODULES + 1 + 2 * layout_of + selective)[several]]),
        any_layout=np.concatenate([none, (fitting > 1)[several]]),
        any_modules=np.concatenate([none, (selective & (modules > 1))[several]]),
    )
    # no plan has a layout of another number of stages, or several sets of modules that it does not recompute
    others = {
        MISFIT: int((all_layouts - fitting).sum()) * modules,
        SILENT: int(fitting[~selective].sum()) * (modules - 1),
    }
    left_out = {reason: LeftOut(count=count, example=reason) for reason, count in others.items() if count}
    rows = space.rows[np.concatenate([legal, several])]
    return replace(space, rows=rows, left_out={**space.left_out, **left_out}), opening


def _table(values: Sequence[Sequence[int]], axes: Sequence[Axis]) -> Rows:
    return np.array(values, np.int16).reshape(len(values), len(axes))


def _indices(axis: Axis, layouts: Ints, modules: int) -> Sequence[int]:
    return layouts.tolist() if axis.path == LAYOUT else range(modules)


def _layouts(space: Space, axis: Axis | None) -> tuple[list[Ints], Ints]:
    """The layouts, by index, of each sort of pipeline, and the sort of each row; the first layout is the even split."""
    even = np.zeros(1, dtype=np.int64)
    if axis is None or not len(space.rows):
        return [even], np.zeros(len(space.rows), np.int64)
    stages = np.array([stages_in(layout) if layout else 0 for layout in axis.values])
    first, of_row = distinct(space.indices(PIPELINE), len(space.rows))
    found = [even]
    for plan in (space.run(row).plan for row in first.tolist()):
        depth = registry.get(plan.schedule).placement(plan.pp, plan.vpp).depth
        found.append(np.flatnonzero((stages == 0) | (stages == depth)))
    split = np.any([space.column(path) != 0 for path in OTHER_SPLITS], axis=0)
    return found, np.where(split, 0, of_row + 1)


def opened(space: Space, opening: Openings, rows: Sequence[int]) -> tuple[Space, Openings]:
    """The rows that take the places of some: one for each layout, which stands for any modules if theirs did; else the plans."""
    axes = [(place, axis.path) for place, axis in enumerate(space.question.axes) if axis.by_plan]
    parts, sorts = [], []
    for row in rows:
        values = opening.values[opening.of_row[row]]
        own_sorts = np.full(len(values), ITSELF)
        if opening.any_layout[row] and opening.any_modules[row]:
            column = [path for _, path in axes].index(LAYOUT)
            indices = np.unique(values[:, column])
            values = np.full((len(indices), len(axes)), AS_IT_IS, np.int16)
            values[:, column] = indices
            own_sorts = np.where(indices == 0, OTHER_MODULES, ALL_MODULES)
        own = np.repeat(space.rows[row : row + 1], len(values), axis=0)
        for column, (place, _) in enumerate(axes):
            own[:, place] = np.where(values[:, column] == AS_IT_IS, own[:, place], values[:, column])
        parts.append(own)
        sorts.append(own_sorts)
    return replace(space, rows=np.concatenate(parts)), opening.of_sorts(np.concatenate(sorts))


def number_of_plans(space: Space) -> int:
    """The legal plans, those that are opened plan by plan among them."""
    return int(with_openings(space)[1].counts.sum())
