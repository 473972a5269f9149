"""Orders of measured plans, as tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.markup import escape

from predict.reports.text import figures_table
from predict.validation.ranking import LEAST_TIMED, GroupScores, mean_over_groups
from sampling.files.faults import counted
from sampling.number_text import signed_percent

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

ORDER = ("τ", "same kernels", "regret", "launches")
NOTE = (
    "τ is Kendall's τ-b on pairs more than 5 % apart; `same kernels` on those that agree in kernels and recomputation. Plans are "
    "launched in order of predicted time, those said to be out of memory last: `regret` is that of the first that runs, `launches` "
    "how many until one is within 2 % of the best, each that runs out of memory included. A random plan's regret and that of the "
    "best of five are expected ones among plans that run. The rule: fastest kernels, no recomputation, smallest microbatch, smallest tp · pp. "
    "`in 90 %`: steps inside their 90 % interval; `ratios`: pairs of plans whose measured ratio is inside the interval of the "
    "predicted one, by which `predict search` calls plans ties; `ties`: the same of the pairs that it calls so."
)


def ranking_text(groups: Sequence[GroupScores], small: int, left_out: Sequence[str]) -> RenderableType:
    from rich.console import Group

    if not groups:
        return Group(
            f"no group of {LEAST_TIMED} or more timed plans that differ in the plan alone", *_rest(small, left_out)
        )
    means = mean_over_groups(groups)
    return Group(_ours(groups, means), "", _others(groups, means), "", NOTE, *_rest(small, left_out))


def _rest(small: int, left_out: Sequence[str]) -> list[str]:
    told = [f"{counted(small, 'group')} of fewer than {LEAST_TIMED} timed plans not judged"] if small else []
    return [*told, *(["", "not judged", *map(escape, left_out)] if left_out else [])]


def _ours(groups: Sequence[GroupScores], means: Mapping[str, float]) -> Table:
    figures = ("plans", "timed", *ORDER, "OOM found", "false OOM", "bias", "in 90 %", "ratios", "ties")
    table = figures_table("predicted order of measured plans", ("group",), figures)
    for one in groups:
        cells = _order_cells(asdict(one.ours)) + _level_cells({**asdict(one), **asdict(one.ratios)})
        table.add_row(escape(one.group), str(one.plans), str(one.timed), *cells)
    table.add_section()
    table.add_row("mean", "", "", *_order_cells(means), *_level_cells(means))
    return table


def _others(groups: Sequence[GroupScores], means: Mapping[str, float]) -> Table:
    figures = (*ORDER, "random regret", "best of 5", "random launches")
    table = figures_table("the rule of four lines, and plans at random", ("group",), figures)
    for one in groups:
        table.add_row(escape(one.group), *_order_cells(asdict(one.rule)), *_random_cells(asdict(one)))
    table.add_section()
    rule = {name.removeprefix("rule_"): value for name, value in means.items() if name.startswith("rule_")}
    table.add_row("mean", *_order_cells(rule), *_random_cells(means))
    return table


def _order_cells(figures: Mapping[str, float]) -> list[str]:
    return [
        _number(figures["tau"]),
        _number(figures["tau_same_class"]),
        _percent(figures["regret"]),
        f"{figures['launches']:.3g}",
    ]


def _level_cells(figures: Mapping[str, float]) -> list[str]:
    rates = [_percent(figures[name]) for name in ("oom_recall", "false_oom")]
    inside = [_percent(figures[name]) for name in ("ratio_coverage", "tie_coverage")]
    return [*rates, f"{signed_percent(figures['bias'])}", f"{figures['coverage']:.0%}", *inside]


def _random_cells(figures: Mapping[str, float]) -> list[str]:
    regrets = [_percent(figures[name]) for name in ("random_regret", "best_of_five_regret")]
    return [*regrets, f"{figures['random_launches']:.3g}"]


def _number(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.2f}"


def _percent(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.1%}"
