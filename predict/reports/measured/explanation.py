"""A prediction beside a profile for a reader in a terminal: the verdict, the terms, and the calls that differ most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from predict.measured_runs.explain.causes import PROFILER
from predict.measured_runs.explain.explanation import CallTerm, Explanation, Term
from predict.reports.measured.unprofiled import measured_text
from predict.reports.provenance import first_lines_of
from predict.reports.text import call_text, figures_table
from sampling.files.faults import counted
from sampling.number_text import duration, durations, percent, signed_percent

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

GUESSED = "≈ "
"""Mark of a predicted part of sampled layers that no sample covers by itself."""
CALLS = 8
"""Calls that are listed."""


def explanation_report(explanation: Explanation) -> RenderableType:
    from rich.console import Group

    guessed = any(term.guessed for term in explanation.terms)
    note = [f"{GUESSED}part of layers that were sampled whole: no sample covers it by itself"] if guessed else []
    terms, calls = _terms(explanation), _calls(explanation.calls)
    return Group(
        *first_lines_of(explanation.prediction),
        _headline(explanation),
        "",
        *_verdict(explanation),
        "",
        terms,
        *note,
        "",
        calls,
    )


def _headline(explanation: Explanation) -> str:
    measured, predicted, interval = explanation.measured, explanation.predicted, explanation.prediction.step_time
    error = predicted.step_us / measured.step_us - 1
    ranks = counted(len(measured.ranks), "rank")
    lines = [
        f"{explanation.prediction.run.name}: {duration(measured.step_us)} measured, {duration(predicted.step_us)} predicted "
        f"(90 %: {durations(interval.low_us, interval.high_us)}; error {signed_percent(error)})",
        f"  {ranks} of {explanation.prediction.run.cluster.world_size} traced; steps found by {measured.rule}; "
        f"{percent(measured.matched_share)} of the kernels' time has an operator",
    ]
    return "\n".join([*lines, *measured_text(explanation.traced)])


def _verdict(explanation: Explanation) -> list[str]:
    step_us = explanation.measured.step_us
    return [
        f"{place}. {finding.text}"
        + (
            f" [adds {percent(finding.cost_us / step_us)} of the step]"
            if finding.cost_us and finding.cause != PROFILER
            else ""
        )
        for place, finding in enumerate(explanation.verdict, start=1)
    ]


def _terms(explanation: Explanation) -> Table:
    step_us = explanation.measured.step_us
    figures = ("predicted", "measured", "difference", "of the step", "hidden", "waiting")
    table = figures_table("where the step goes, mean over traced ranks", ("",), figures)
    for term in explanation.terms:
        table.add_row(*_row(term, step_us))
    rest_us = explanation.unexplained_us
    table.add_row("unexplained", "", duration(rest_us), duration(rest_us), percent(rest_us / step_us), "", "")
    whole = explanation.predicted.step_us
    table.add_row("step", duration(whole), duration(step_us), duration(step_us - whole), "100.0%", "", "")
    if added_us := explanation.profiler_us:
        traced = duration(explanation.traced.step_us)
        table.add_row("profiler", "", duration(added_us), duration(added_us), percent(added_us / step_us), "", "")
        table.add_row("traced step", "", traced, "", "", "", "")
    return table


def _row(term: Term, step_us: float) -> tuple[str, ...]:
    beside = ["" if value is None else duration(value) for value in (term.hidden_us, term.waiting_us)]
    return (
        term.name,
        f"{GUESSED * term.guessed}{duration(term.predicted_us)}",
        duration(term.measured_us),
        duration(term.difference_us),
        percent(term.measured_us / step_us),
        *beside,
    )


def _calls(calls: tuple[CallTerm, ...]) -> Table:
    table = figures_table("calls that differ most", ("call", "direction"), ("predicted", "measured", "ratio"))
    for each in calls[:CALLS]:
        ratio = f"{each.measured_us / each.predicted_us:.2f} ×" if each.predicted_us else ""
        table.add_row(
            call_text(each.call), each.direction, duration(each.predicted_us), duration(each.measured_us), ratio
        )
    return table
