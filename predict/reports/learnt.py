"""Lessons of published runs, for a terminal: widths, constants judged on sources left out, calibrations by a few runs."""

from collections.abc import Sequence

from predict.measured_runs.calibrate import RULE
from predict.reports.compared import share
from predict.reports.printed import Renderable
from predict.reports.text import escape, stacked, table
from predict.validation.compared import scores
from predict.validation.few_shot import FewShot
from predict.validation.left_out import JudgedConstant
from predict.validation.widths import LearntPlanSetting, LearntWidths
from sampling.number_text import plain, significant, whole_percent


def widths_text(learnt: LearntWidths) -> Renderable:
    return stacked(
        table(
            "half-width in log time that an unknown adds for 90 % coverage, and its range with one source left out",
            learnt.widths,
            {"unknown": lambda one: one.unknown},
            {
                "learnt": lambda one: significant(one.width),
                "least": lambda one: significant(one.low),
                "greatest": lambda one: significant(one.high),
            },
        ),
        "",
        table(
            "each source with the widths that the others teach",
            learnt.left_out,
            {"class": lambda one: one.judged_as},
            {
                "rows": lambda one: str(one.configurations),
                "in 90 % interval": lambda one: share(one.coverage, write=whole_percent),
                "log half-width": lambda one: share(one.log_half_width, write=significant),
            },
        ),
    )


def plan_setting_text(learnt: LearntPlanSetting) -> Renderable:
    return stacked(
        table(
            "half-width in log time of the ratio of two plans per differing setting, for 90 % coverage",
            learnt.sources,
            {"source": lambda one: one.source},
            {
                "pairs": lambda one: f"{one.pairs:,}",
                "needed": lambda one: significant(one.width),
                "by the others": lambda one: significant(one.by_others),
                "then in 90 % interval": lambda one: whole_percent(one.coverage_by_others),
            },
        ),
        "",
        f"learnt: {significant(learnt.width)}, the median over the sources, which need {significant(learnt.low)} to {significant(learnt.high)}",
    )


def left_out_text(found: Sequence[JudgedConstant]) -> Renderable:
    return stacked(
        table(
            "constants that move these runs: stated, and the value of least error within the bounds, on all sources and with one left out",
            found,
            {"constant": lambda one: one.name},
            {
                "stated": lambda one: plain(one.stated),
                "bounds": lambda one: f"{plain(one.low)} to {plain(one.high)}",
                "learnt": lambda one: plain(one.learnt),
                "one left out": lambda one: (
                    f"{plain(one.least)} to {plain(one.greatest)}" if one.sources > 1 else "no other source"
                ),
                "rows": lambda one: str(one.configurations),
                "sources": lambda one: str(one.sources),
                "error, stated": lambda one: share(one.error_stated / 100),
                "error, left out": lambda one: share(one.error_left_out / 100),
            },
        ),
        "errors: mean absolute, in log time, of the rows that a constant moves; left out: each source with the value that others teach",
    )


def few_shot_text(judged: Sequence[FewShot], count: int) -> Renderable:
    return stacked(
        table(
            f"each source's other configurations, before and after {count} were measured",
            [(one, scores(one.before), scores(one.after)) for one in judged],
            {"source": lambda each: each[0].source},
            {
                "fitted to": lambda each: str(len(each[0].posterior.runs) if each[0].posterior else 0),
                "others": lambda each: str(each[1].rows),
                "error before": lambda each: share(each[1].mean),
                "error after": lambda each: share(each[2].mean),
                "inside before": lambda each: share(each[1].coverage, write=whole_percent),
                "inside after": lambda each: share(each[2].coverage, write=whole_percent),
            },
        ),
        *(escape(f"{one.source} refused: {one.refused}") for one in judged if one.refused),
        f"chosen {RULE}",
    )
