"""Sensitivities as two ranked tables in a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from predict.plan_search.sensitivity import Sensitivities, Sensitivity
from predict.reports.text import figures_table, first_lines_of
from predict.serialise import as_json, version_of
from sampling.files.faults import counted
from sampling.number_text import duration, durations, signed_percent

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


NOTHING = 5e-5
"""Share of the step below which a change counts as none."""


def sensitivity_text(found: Sensitivities) -> RenderableType:
    from rich.console import Group
    from rich.markup import escape

    prediction = found.prediction
    step = prediction.step_time
    sampled = 1 - prediction.sources["analytic"]
    head = [
        *first_lines_of(prediction),
        f"[bold]{escape(prediction.run.name)}[/]  step {duration(step.median_us)} "
        f"(90 %: {durations(step.low_us, step.high_us)})",
    ]
    if sampled >= NOTHING:
        head.append(
            f"{sampled:.0%} of the work rests on samples, which are carried over to a device with another figure by the peaks of "
            f"the two: the same device so carried over takes {duration(found.carried_over_us)}, beside which figures are judged"
        )
    return Group(
        *head,
        "",
        *_table("10 % better, one figure at a time", found.figures),
        "",
        *_table("another setting, one at a time", found.settings),
    )


def _table(title: str, changes: Sequence[Sensitivity]) -> list[Table | str]:
    """The changes that matter, and how many do not."""
    if not changes:
        return [f"[bold]{title}[/]: none applies to this run"]
    table = figures_table(title, ("", "change"), ("step time", "saves"))
    told = [each for each in changes if abs(each.gain) >= NOTHING]
    for each in told:
        table.add_row(each.name, each.change, duration(each.step_us, digits=4), signed_percent(each.gain, decimals=2))
    left = len(changes) - len(told)
    return [table, *([f"  {counted(left, 'other')} {'changes' if left == 1 else 'change'} nothing"] if left else [])]


def sensitivity_json(found: Sensitivities) -> dict[str, Any]:
    """All changes, those that bring nothing included; gains are shares of the step."""
    return {
        "version": version_of("sensitivity"),
        "run": found.prediction.run.name,
        "step_time_us": as_json(found.prediction.step_time),
        "carried_over_us": found.carried_over_us,
        "analytic": found.prediction.sources["analytic"],
        "figures": [asdict(each) for each in found.figures],
        "settings": [asdict(each) for each in found.settings],
    }
