"""Measured orders of plans next to predicted ones, for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from predict.reports.compared import NOTHING, counts, refused, shares
from predict.reports.printed import Renderable, Table
from predict.reports.text import Columns, stacked, table
from predict.validation.ranking import LEAST_TIMED
from sampling.files.faults import counted
from sampling.number_text import plain, significant, whole_percent

RANKING_NOTE = (
    "τ is Kendall's τ-b on pairs more than 5 % apart; `same kernels` on those that agree in kernels and recomputation. Plans are "
    "launched in order of predicted time, those said to be out of memory last: `regret` is that of the first that runs, `launches` "
    "how many until one is within 2 % of the best, each that runs out of memory included. A random plan's regret and that of the "
    "best of five are expected ones among plans that run. The rule: fastest kernels, no recomputation, smallest microbatch, smallest tp · pp. "
    "`in 90 %`: steps inside their 90 % interval; `ratios`: pairs of plans whose measured ratio is inside the interval of the "
    "predicted one, by which `predict search` calls plans ties; `ties`: the same of the pairs that it calls so."
)


def ranking_text(content: Mapping[str, Any]) -> Renderable:
    """The content of `predict validate ranking --json` for a terminal."""
    groups, small = content["groups"], content["smaller_groups"]
    rest: list[Renderable] = []
    if small:
        rest.append(f"{counted(small, 'group')} of fewer than {LEAST_TIMED} timed plans not judged")
    rest += refused(
        "not judged", [(name, why) for name, _, why in (line.partition(": ") for line in content["left_out"])]
    )
    if not groups:
        return stacked(f"no group of {LEAST_TIMED} or more timed plans that differ in the plan alone", *rest)
    ours = {
        **counts({"plans": "plans", "timed": "timed"}),
        **_of_order(),
        **shares({"OOM found": "oom_recall", "false OOM": "false_oom", "bias": "bias", "in 90 %": "coverage"}),
        **shares({"ratios": "ratio_coverage", "ties": "tie_coverage"}),
    }
    others = {
        **_of_order("rule_"),
        **shares({"random regret": "random_regret", "best of 5": "best_of_five_regret"}),
        "random launches": lambda row: plain(row["random_launches"]),
    }
    mean = {"group": "mean", "plans": "", "timed": "", **content["summary"]}
    return stacked(
        _over_groups("predicted order of measured plans", groups, mean, ours),
        "",
        _over_groups("the rule of four lines, and plans at random", groups, mean, others),
        "",
        RANKING_NOTE,
        "",
        reliability_table(content["reliability"]),
        *rest,
    )


def reliability_table(bins: Sequence[Mapping[str, Any]]) -> Table:
    """The bins of a reliability: of a calibrated prediction, as many plans fit as were predicted to."""
    return table(
        "probability of fitting in memory: predicted beside what ran",
        bins,
        {"probability": lambda row: f"{whole_percent(row['low'])} to {whole_percent(row['high'])}"},
        {**counts({"plans": "plans"}), **shares({"predicted": "predicted", "ran": "fitted"})},
    )


def _of_order(prefix: str = "") -> Columns[Mapping[str, Any]]:
    return {
        "τ": lambda row: _number(row[f"{prefix}tau"]),
        "same kernels": lambda row: _number(row[f"{prefix}tau_same_class"]),
        **shares({"regret": f"{prefix}regret"}),
        "launches": lambda row: plain(row[f"{prefix}launches"]),
    }


def _number(value: float | None) -> str:
    return NOTHING if value is None else significant(value)


def _over_groups(
    title: str, groups: Sequence[Mapping[str, Any]], mean: Mapping[str, Any], columns: Columns[Mapping[str, Any]]
) -> Table:
    """A row for each group, and their mean below a line."""
    found = table(title, groups, {"group": lambda row: row["group"]}, columns)
    found.add_section()
    found.add_row("mean", *(cell(mean) for cell in columns.values()))
    return found
