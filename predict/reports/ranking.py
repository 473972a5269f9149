"""Measured orders of plans next to predicted ones, for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from predict.plan_search.compare import setting_text
from predict.reports.compared import FURTHEST, INTERVAL, NOTHING, counts, refused, share, shares
from predict.reports.printed import Renderable, Table
from predict.reports.text import Columns, stacked, table
from predict.validation.compared import Refused
from predict.validation.ranking import LEAST_TIMED
from predict.validation.recipes import BestPlan, Recipe, RecipeOutcome, exploited, expressed, recipes_summary
from sampling.files.faults import counted
from sampling.number_text import duration, multiple, percent, plain, signed_percent, significant, whole_percent

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


# Published, tuned plans beside the best that a search finds, for a terminal.

MOST_TERMS = 4
"""Headings of a step that are named where two plans differ."""
NOTE = (
    "gain: predicted time of the published plan over that of the best plan for the same cluster, batch, precision and framework, "
    "which is tied with it where the interval of the ratio holds 1"
)


def recipes_text(outcomes: Sequence[RecipeOutcome]) -> Renderable:
    recipes = expressed(outcomes)
    unread = refused("not expressible", [(one.row.row_id, one.why) for one in outcomes if isinstance(one, Refused)])
    if not recipes:
        return stacked("no complete row of a tuned recipe to judge", *unread)
    parts: list[Renderable] = [
        table("published plans beside the best ones", recipes, NAMES, FIGURES),
        "",
        NOTE,
        "",
        _in_words(recipes_summary(recipes)),
    ]
    if beyond := exploited(recipes):
        title = (
            f"gains above their interval, of {len(beyond)} the largest: there the search exploits an error of the model"
        )
        gains: Columns[Recipe] = {"gain": FIGURES["gain"], INTERVAL: FIGURES[INTERVAL]}
        parts += ["", table(title, beyond[:FURTHEST], {"row": NAMES["row"]}, gains, DIFFERING)]
    return stacked(*parts, *unread)


def _in_words(summary: Mapping[str, Any]) -> str:
    figures = ", ".join(
        f"{name} {_times(summary[key])}"
        for name, key in (("median", "gain_median"), ("worst", "gain_worst"), ("least", "gain_least"))
    )
    return (
        f"{counted(summary['rows'], 'recipe')}, {summary['out_of_memory']} said to be out of memory; gain of the plans that may fit: "
        f"{figures}; tied with the best: {share(summary['tied_share'])}"
    )


def _times(gain: float | None) -> str:
    return NOTHING if gain is None else f"{multiple(gain)}"


NAMES: Columns[Recipe] = {
    "row": lambda one: one.row.row_id,
    "model": lambda one: one.row.text("model"),
    "GPUs": lambda one: f"{one.published.run.cluster.world_size} {one.row.text('gpu')}",
    "precision": lambda one: one.row.text("precision"),
    "verdict": lambda one: one.published.memory.verdict,
}
FIGURES: Columns[Recipe] = {
    "fits": lambda one: percent(one.published.memory.fits_probability),
    "published": lambda one: duration(one.published.median_us),
    "best": lambda one: NOTHING if one.best_us is None else duration(one.best_us),
    "gain": lambda one: _times(one.gain),
    INTERVAL: lambda one: (
        f"{significant(one.best.ratio.low)} to {significant(one.best.ratio.high)}" if one.best else NOTHING
    ),
    "tied": lambda one: NOTHING if one.best is None else "yes" if one.best.ratio.tied else "NO",
}


def _of_best(one: Recipe) -> BestPlan:
    assert one.best is not None
    return one.best


def _settings(one: Recipe) -> str:
    """`plan.tp 4 → 2, plan.pp 8 → 4`: the published values and the best plan's."""
    settings = _of_best(one).beside.settings.items()
    return ", ".join(f"{path} {setting_text(own)} → {setting_text(its)}" for path, (own, its) in settings)


def _terms(one: Recipe) -> str:
    """The headings of the step that change most, as shares of the published step."""
    changes = sorted(_of_best(one).beside.change_us.items(), key=lambda change: -abs(change[1]))
    return ", ".join(f"{name} {signed_percent(us / one.published.median_us)}" for name, us in changes[:MOST_TERMS])


DIFFERING: Columns[Recipe] = {"the best plan's settings": _settings, "the terms that differ, of the step": _terms}
