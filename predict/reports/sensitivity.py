"""Sensitivities as two ranked tables in a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from predict.interval import Interval
from predict.kinds import RL, SERVING, TRAINING
from predict.plan_search.sensitivity import Sensitivities, Sensitivity
from predict.plan_search.serving import carried
from predict.reports.printed import Renderable, Table
from predict.reports.rl_step import notes_on_steps
from predict.reports.serving_step import notes_on_answers
from predict.reports.text import chance, escape, figures_table, first_lines_of, stacked
from predict.serialise import as_json, picked, version_of
from predict.validation.compared import grouped
from sampling.files.faults import counted
from sampling.number_text import duration, durations, signed_percent, significant, whole_percent

NOTHING = 5e-5
"""Share of a measure below which a change counts as none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Headline:
    """The first figure of a kind's predictions, with its interval."""

    interval: Callable[[Any], Interval]
    analytic: Callable[[Any], float | None] = lambda prediction: None
    """The share of the work that does not rest on samples; None where it is not known."""
    before: Callable[[Any], Sequence[str]] = lambda prediction: ()
    """Lines above."""
    text: str = "step"
    """In front of it."""
    key: str = "step_time_us"
    """Its key in JSON."""
    carried_over_key: str = "carried_over_us"


HEADLINES: Mapping[str, Headline] = {
    TRAINING: Headline(
        interval=attrgetter("step_time"),
        analytic=lambda prediction: prediction.sources["analytic"],
        before=first_lines_of,
    ),
    RL: Headline(interval=attrgetter("time"), before=lambda step: notes_on_steps([step])),
    SERVING: Headline(
        text="carries, requests/s:",
        interval=carried,
        key="carried_rps",
        carried_over_key="carried_over_rps",
        before=lambda found: notes_on_answers([found]),
    ),
}


def sensitivity_text(found: Sensitivities) -> Renderable:
    headline, key = HEADLINES[found.kind.name], next(iter(found.kind.measures))
    now, carried_over = headline.interval(found.prediction), found.carried_over[key]
    bounds = durations(now.low, now.high) if _is_time(key) else f"{significant(now.low)} to {significant(now.high)}"
    head = [
        *headline.before(found.prediction),
        f"[bold]{escape(found.name)}[/]  {headline.text} {_figure(key, now.median)} (90 %: {bounds})",
    ]
    analytic = headline.analytic(found.prediction)
    if abs(carried_over / now.median - 1) >= NOTHING if analytic is None else 1 - analytic >= NOTHING:
        rests = (
            "What rests on samples is"
            if analytic is None
            else f"{whole_percent(1 - analytic)} of the work rests on samples, which are"
        )
        so_carried = "takes" if _is_time(key) else "carries"
        head.append(
            f"{rests} carried over to a device with another figure by the peaks of the two: the same device so carried over {so_carried} "
            f"{_figure(key, carried_over)}, beside which figures are judged"
        )
    return stacked(
        *head,
        "",
        *_table("10 % better, one figure at a time", found, found.figures),
        "",
        *_table("another setting, one at a time", found, found.settings),
    )


def _is_time(key: str) -> bool:
    return key.endswith("_us")


def _figure(key: str, value: float, digits: int = 3) -> str:
    return duration(value, digits=digits) if _is_time(key) else significant(value)


def _table(title: str, found: Sensitivities, changes: Sequence[Sensitivity]) -> list[Table | str]:
    """The changes that matter, and how many do not."""
    if not changes:
        return [f"[bold]{title}[/]: none applies to this run"]
    measures = found.kind.measures
    first = next(iter(measures.values()))
    judged = changes is found.settings and any(each.fits_probability is not None for each in changes)
    columns = (*(each.title for each in measures.values()), "gains" if first.is_rate else "saves")
    table = figures_table(title, ("", "change"), (*columns, *(["fits"] if judged else [])))
    now = {key: measure.value(found.prediction) for key, measure in measures.items()}
    shown = [each for each in changes if any(abs(each.values[key] / now[key] - 1) >= NOTHING for key in measures)]
    changes_of = {
        named: _in_one([each.change for each in alike])
        for named, alike in grouped(shown, lambda each: (each.name, _effect(each))).items()
    }
    for (said, _), alike in grouped(shown, lambda each: (changes_of[each.name, _effect(each)], _effect(each))).items():
        each = alike[0]
        figures = [_figure(key, each.values[key], digits=4) for key in measures]
        fits = [chance(each.fits_probability)] if judged and each.fits_probability is not None else []
        names = ", ".join(dict.fromkeys(map(attrgetter("name"), alike)))
        table.add_row(names, said, *figures, signed_percent(each.gain, decimals=2), *fits)
    left = len(changes) - len(shown)
    return [table, *([f"  {counted(left, 'other')} {'changes' if left == 1 else 'change'} nothing"] if left else [])]


def _in_one(changes: Sequence[str]) -> str:
    """Changes of one setting, those from one value with it once: `fa2 → fa3, fa4`."""
    by_first = grouped((change.partition(" → ") for change in changes), lambda parts: parts[:2])
    return "; ".join("".join(first) + ", ".join(parts[2] for parts in alike) for first, alike in by_first.items())


def _effect(change: Sensitivity) -> tuple[object, ...]:
    """Every figure of a change. Changes that agree in all share a line where they are changes of one setting, or the same changes of
    several, such as two dtypes of as many bytes."""
    return change.fits_probability, *(significant(value, 9, most_decimals=9) for value in change.values.values())


def sensitivity_json(found: Sensitivities) -> dict[str, Any]:
    """All changes, those that bring nothing included; gains are shares of the step, or of the rate that a server carries."""
    headline, first = HEADLINES[found.kind.name], next(iter(found.kind.measures))
    now, analytic = headline.interval(found.prediction), headline.analytic(found.prediction)
    return {
        "version": version_of("sensitivity"),
        "run": found.name,
        headline.key: as_json(now) if _is_time(first) else picked(now, "median low high"),
        headline.carried_over_key: found.carried_over[first],
        **({} if analytic is None else {"analytic": analytic}),
        "figures": [_change_json(each) for each in found.figures],
        "settings": [{**_change_json(each), **_fits_json(each)} for each in found.settings],
    }


def _fits_json(change: Sensitivity) -> dict[str, float]:
    return {} if change.fits_probability is None else {"fits_probability": change.fits_probability}


def _change_json(change: Sensitivity) -> dict[str, Any]:
    return {"name": change.name, "change": change.change, **change.values, "gain": change.gain}
