"""The history of a cluster's runs, for a terminal and as JSON."""

import re
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from predict.measured_runs.history import ALARM, Drift, History
from predict.measured_runs.records import local_time
from predict.reports.printed import Renderable
from predict.reports.text import escape, figures_table, stacked
from predict.serialise import picked, versioned
from predict.validation.compared import grouped
from sampling.files.faults import counted
from sampling.number_text import duration, durations, percent, signed_percent, significant, whole_percent

OF_THE_TABLE = re.compile("^[^:]*: measured [^:]*, predicted [^:]*: ")
"""Start of a doubt with the figures of its run, which the table has."""
MOST_SHOWN = 20
"""Runs of a cluster in the table, the last ones; the JSON has all."""


def histories_json(histories: Sequence[History]) -> dict[str, Any]:
    """The contract of `predict history --json`."""
    return versioned("history", {"clusters": [_history_json(each) for each in histories]})


def _history_json(history: History) -> dict[str, Any]:
    runs = zip(history.ids, history.records, history.now_us, history.outliers, strict=True)
    return {
        "cluster": history.cluster,
        "runs": [
            {"id": id_}
            | picked(one, "date run measured predicted")
            | {"predicted_now_us": now_us}
            | picked(one, "error covered")
            | {"doubt": doubt}
            for id_, one, now_us, doubt in runs
        ],
        **picked(history, "earlier_runs=earlier mean_error bias coverage"),
        "false_alarm_rate": ALARM,
        "drifts": history.drifts,
    }


def history_text(history: History, most: int = MOST_SHOWN) -> Renderable:
    """The last runs as a table, `most` at most, the errors of all, and each change in a sentence."""
    columns = ("measured", "predicted then", "90 % interval", "error", "inside")
    table = figures_table(escape(history.cluster), ("id", "date", "run"), columns)
    shown_runs = [*zip(history.ids, history.records, history.outliers, strict=True)][-most:]
    for id_, one, doubt in shown_runs:
        table.add_row(
            id_,
            one.date[:10],
            escape(one.run),
            duration(one.measured.step_us),
            duration(one.predicted.median_us),
            durations(one.predicted.low_us, one.predicted.high_us),
            signed_percent(one.error),
            "doubtful" if doubt else "yes" if one.covered else "NO",
        )
    older = len(history.records) - most
    shown = f" ({older} older ones are not shown)" if older > 0 else ""
    totals = f"{counted(len(history.records), 'run')}{shown}{_counting(history)}: {_errors(history)}"
    return stacked(table, totals, *_doubtful(history), *_drifts(history.drifts, history.records[0].date))


def _counting(history: History) -> str:
    """The number of runs that the figures are of, where those are not all."""
    count = len(history.counting)
    return f", of which {count} {'counts' if count == 1 else 'count'}" if 0 < count < len(history.records) else ""


def _errors(history: History) -> str:
    """The errors of the runs that count, in words."""
    error, bias, coverage = history.mean_error, history.bias, history.coverage
    if error is None or bias is None or coverage is None:
        return "none counts"
    errors = f"mean error {percent(error)}, bias {signed_percent(bias)}, intervals cover {whole_percent(coverage)}"
    return f"{errors} (errors are predicted over measured, less 1)"


def _doubtful(history: History) -> Iterator[str]:
    """Each reason for doubt once, with the runs that it holds for, and what becomes of them."""
    doubtful = [
        (id_, OF_THE_TABLE.sub("", doubt)) for id_, doubt in zip(history.ids, history.outliers, strict=True) if doubt
    ]
    if doubtful:
        yield (
            "doubtful runs count neither in these errors nor in changes until another run of the same config takes about as long; "
            "`predict record --remove ID` takes one away:"
        )
    for doubt, alike in grouped(doubtful, itemgetter(1)).items():
        yield f"  {', '.join(id_ for id_, _ in alike)}: {escape(doubt)}"


def _drifts(drifts: Sequence[Drift], first_shown: str) -> Iterator[str]:
    for each in drifts:
        earlier = " (before the runs shown)" if local_time(each.since) < local_time(first_shown) else ""
        faster = "slower" if each.factor > 1 else "faster"
        by = abs(each.factor - 1)
        yield (
            f"since {each.since[:10]}{earlier} steps are {percent(by)} {faster} than predicted, against the {counted(each.before, 'run')} before "
            f"({counted(each.after, 'run')} since; chance without a change {percent(max(each.chance, 0.001))})"
        )
        first, *others = each.explained_by or (None,)
        if first:
            as_well = (
                "; so would " + ", ".join(f"{_term(one.term)} × {significant(one.factor)}" for one in others if one)
                if others
                else ""
            )
            yield f"  {_term(first.term)} × {significant(first.factor)} would explain {whole_percent(first.share)} of it{as_well}"
        else:
            yield "  no term of a calibration explains it within its bounds"
    if not drifts:
        yield f"no change stands out (at {whole_percent(ALARM)} false alarms)"


def _term(name: str) -> str:
    return name.replace("_", " ")
