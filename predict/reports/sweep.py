"""Combinations of a config's values, swept or searched, as a table in a terminal and as JSON: steps, RL steps and servers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from predict.kinds import RL, SERVING, TRAINING
from predict.memory.estimate import VERDICTS
from predict.plan_search.serving import carried_cost
from predict.plan_search.sweep import SweptRow, SweptRows
from predict.reports import search_columns
from predict.reports.printed import Renderable
from predict.reports.rl_step import notes_on_steps
from predict.reports.serving import load_line
from predict.reports.serving_step import CAPACITY_BELOW, coefficients_line, notes_on_answers
from predict.reports.text import escape, figures_table, first_lines_of, stacked
from predict.serialise import picked, versioned
from predict.serving.questions import ServerAnswer, objectives_text
from sampling.files.faults import counted


@dataclass(frozen=True, kw_only=True, slots=True)
class RowsReport:
    """The parts of a report on combinations that differ between kinds of config."""

    columns: Callable[[Any], search_columns.Columns[Any]]
    """From the first prediction."""
    head: Callable[[SweptRows[Any]], Mapping[str, Any]]
    """First keys of the JSON."""
    format: str
    whole_paths: bool = False
    """Whether the headings of varied keys are their whole paths."""
    before: Callable[[Sequence[Any]], Sequence[str]] = lambda found: ()
    """Lines above the table."""
    after: Callable[[Sequence[Any], str | None], Iterator[str]] = lambda found, ordered_by: iter(
        [ordered_by] if ordered_by else []
    )
    """Lines below it, the order of the rows among them, '' for that of --vary; None where another line has it."""


def _notes_on_servers(found: Sequence[ServerAnswer], ordered_by: str | None) -> Iterator[str]:
    """The load that all have, the order, and the meaning of the columns."""
    first = found[0]
    loads = dict.fromkeys(load_line(one.outcomes[0].load) for one in found)
    yield from (f"load: {load}" for load in loads if len(loads) == 1)
    if ordered_by is not None:
        yield ordered_by or "in the order of --vary"
    if first.kept:
        yield f"keeps: the highest rate with {objectives_text(first.kept.objectives)}; limit: what fails above it"
        if any(one.server.run.load.rate for one in found):
            yield "for load: servers for the rate of the load, and one that may fail"
    yield f"per GPU: requests per second at {rate_in_words(first)}"
    yield f"90 %: {CAPACITY_BELOW}"
    if carried_cost(first):
        yield "per M out: money per million output tokens there, prompts included"
    yield coefficients_line(first.server.stepper)


def rate_in_words(found: ServerAnswer) -> str:
    """The rate that is carried."""
    return "the highest rate that keeps the objectives" if found.kept else "capacity"


def _head_of_servers(found: SweptRows[ServerAnswer]) -> Mapping[str, Any]:
    used = found.predictions[0].server.stepper.coefficients
    return {"config": found.name, "step": picked(used, "model source")}


REPORTS: Mapping[str, RowsReport] = {
    TRAINING: RowsReport(
        columns=lambda first: search_columns.STEPS,
        head=lambda found: {"run": found.name},
        format="sweep",
        whole_paths=True,
        before=lambda found: first_lines_of(*found),
    ),
    RL: RowsReport(
        columns=lambda first: search_columns.RL_STEPS,
        head=lambda found: {"run": found.name},
        format="rl-sweep",
        before=notes_on_steps,
    ),
    SERVING: RowsReport(
        columns=search_columns.server_columns,
        head=_head_of_servers,
        format="serving-sweep",
        before=notes_on_answers,
        after=_notes_on_servers,
    ),
}


def sweep_text(found: SweptRows[Any], objective: str | None = None) -> Renderable:
    """A row per combination that is predicted, ordered by the objective where there is one, then why others cannot run."""
    rows = [row for row in found.rows if row.prediction is not None]
    report, predictions = REPORTS[found.kind.name], [row.prediction for row in rows]
    columns = report.columns(predictions[0])
    titles = _titles(found, report)
    table = figures_table(escape(count_text(found)), (), (*titles, *search_columns.headings(columns)), keys=len(titles))
    for row in rows:
        table.add_row(*map(escape, _values(found, row)), *search_columns.cells(columns, row.prediction))
    ordered_by = f"the best first, by {found.kind.orders[objective].meaning}" if objective else ""
    notes = [escape(line) for line in report.after(predictions, ordered_by)]
    return stacked(*report.before(predictions), table, *reasons_text(found), *(["", *notes] if notes else []))


def count_text(found: SweptRows[Any]) -> str:
    """The number of combinations, and of those with each verdict on their memory; of servers, which have none, of those that can run."""
    verdicts = [found.kind.verdict(each) for each in found.predictions]
    counts = [f"{verdicts.count(each)} {each}" for each in VERDICTS if each in verdicts]
    refused = len(found.rows) - len(verdicts)
    counts += [f"{refused} refused"] if counts and refused else []
    return (
        f"{found.name}: {counted(len(found.rows), 'combination')}, {', '.join(counts) or f'{len(found.best)} can run'}"
    )


def _titles(found: SweptRows[Any], report: RowsReport) -> list[str]:
    """Headings of the varied keys."""
    paths = [each.path for each in found.varied]
    short = ["engine" if path == "engine.name" else path.rpartition(".")[2] for path in paths]
    return paths if report.whole_paths or len(set(short)) < len(short) else short


def _values(found: SweptRows[Any], row: SweptRow[Any]) -> list[str]:
    return [value_text(row.settings[each.path]) for each in found.varied]


def value_text(value: Any) -> str:
    """The value of a setting in a table."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def reasons_text(found: SweptRows[Any]) -> Iterator[str]:
    """The combinations that cannot run, each reason once; of those that do not fit, the least that one of them needs."""
    cannot_run: dict[str, list[str]] = {}
    misfits: dict[str, list[str]] = {}
    for row in found.left_out:
        if row.prediction is None:
            cannot_run.setdefault(row.reason, []).append(" · ".join(_values(found, row)))
        else:
            misfits.setdefault(row.reason.partition(" needs ")[0], []).append(row.reason)
    if cannot_run:
        yield from ("", f"cannot run ({' · '.join(each.path for each in found.varied)}):")
    for why, which in cannot_run.items():
        faults = "\n    ".join(why.splitlines())
        yield f"  {escape(', '.join(which))}: {escape(faults)}"
    for reasons in misfits.values():
        yield escape(f"{counted(len(reasons), 'combination')} left out: {min(reasons)}")


def sweep_json(found: SweptRows[Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The long table's rows, in their order, and the keys that were varied."""
    report = REPORTS[found.kind.name]
    return versioned(
        report.format,
        {**report.head(found), "varied": {each.path: each.values for each in found.varied}, "rows": rows},
    )
