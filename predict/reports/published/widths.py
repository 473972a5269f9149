"""Widths learnt from published runs, as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from predict.reports.text import figures_table
from predict.validation.widths import LearntPlanSetting, LearntWidths

if TYPE_CHECKING:
    from rich.console import RenderableType


def widths_text(learnt: LearntWidths) -> RenderableType:
    from rich.console import Group

    title = "half-width in log time that an unknown adds for 90 % coverage, and its range with one source left out"
    widths = figures_table(title, ("unknown",), ("learnt", "least", "greatest"))
    for one in learnt.widths:
        widths.add_row(escape(one.unknown), f"{one.width:.3f}", f"{one.low:.3f}", f"{one.high:.3f}")
    title = "each source with the widths that the others teach"
    classes = figures_table(title, ("class",), ("rows", "in 90 % interval", "log half-width"))
    for each in learnt.left_out:
        cells = (str(each.configurations), f"{each.coverage:.0%}", f"{each.log_half_width:.2f}")
        classes.add_row(escape(each.judged_as), *cells)
    return Group(widths, "", classes)


def plan_setting_text(learnt: LearntPlanSetting) -> RenderableType:
    from rich.console import Group

    title = "half-width in log time of the ratio of two plans per differing setting, for 90 % coverage"
    sources = figures_table(title, ("source",), ("pairs", "needed", "by the others", "then in 90 % interval"))
    for one in learnt.sources:
        figures = (f"{one.pairs:,}", f"{one.width:.3f}", f"{one.by_others:.3f}", f"{one.coverage_by_others:.0%}")
        sources.add_row(escape(one.source), *figures)
    return Group(
        sources,
        "",
        f"learnt: {learnt.width:.3f}, the median over the sources, which need {learnt.low:.3f} to {learnt.high:.3f}",
    )
