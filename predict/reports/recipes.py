"""Published, tuned plans beside the best that a search finds, for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from predict.plan_search.compare import setting_text
from predict.reports.compared import FURTHEST, INTERVAL, NOTHING, refused, share
from predict.reports.printed import Renderable
from predict.reports.text import Columns, stacked, table
from predict.validation.compared import Refused
from predict.validation.recipes import BestPlan, Recipe, RecipeOutcome, exploited, expressed, recipes_summary
from sampling.files.faults import counted
from sampling.number_text import duration, multiple, percent, signed_percent, significant

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
