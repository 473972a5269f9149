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
NOTHING, ITSELF = 0, 1
"""Sorts of rows: one that its plans replaced, and one of them."""
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

    def replaced(self, rows: Sequence[int], plans: int) -> Openings:
        """Those of the rows, some of which stand for nothing any more, and of so many plans that follow, each of which stands for
        itself."""
        of_row, none = self.of_row.copy(), np.zeros(plans, dtype=bool)
        of_row[list(rows)] = NOTHING
        return replace(
            self,
            of_row=np.concatenate([of_row, np.full(plans, ITSELF)]),
            any_layout=np.concatenate([self.any_layout, none]),
            any_modules=np.concatenate([self.any_modules, none]),
        )


def with_openings(space: Space) -> tuple[Space, Openings]:
    """The legal plans, followed by the rows that stand for plans that differ from one of them in the keys that are opened."""
    axes = [axis for axis in space.question.axes if axis.by_plan]
    by_path = {axis.path: axis for axis in axes}
    layouts, layout_of = _layouts(space, by_path.get(LAYOUT))
    selective = np.asarray(space.column("plan.recompute") == "selective")
    modules = len(by_path[MODULES].values) if MODULES in by_path else 1
    sorts: list[Rows] = [np.zeros((count, len(axes)), np.int16) for count in (0, 1)]
    for own, takes in product(layouts, (False, True)):
        values = list(product(*(_indices(axis, own, modules if takes else 1) for axis in axes)))
        sorts.append(np.array(values[1:], np.int16).reshape(len(values) - 1, len(axes)))
    fitting = np.array([len(own) for own in layouts])[layout_of]
    all_layouts = len(by_path[LAYOUT].values) if LAYOUT in by_path else 1
    legal = np.arange(len(space.rows))
    several = np.flatnonzero((fitting > 1) | (selective & (modules > 1)))
    none = np.zeros(len(legal), dtype=bool)
    opening = Openings(
        values=sorts,
        of_row=np.concatenate([np.full(len(legal), ITSELF), (ITSELF + 1 + 2 * layout_of + selective)[several]]),
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


def opened(space: Space, opening: Openings, rows: Sequence[int]) -> Space:
    """The plans that some rows of a space stand for."""
    places = [place for place, axis in enumerate(space.question.axes) if axis.by_plan]
    parts = []
    for row in rows:
        values = opening.values[opening.of_row[row]]
        own = np.repeat(space.rows[row : row + 1], len(values), axis=0)
        own[:, places] = values
        parts.append(own)
    return replace(space, rows=np.concatenate(parts))


def number_of_plans(space: Space) -> int:
    """The legal plans, those that are opened plan by plan among them."""
    return int(with_openings(space)[1].counts.sum())
