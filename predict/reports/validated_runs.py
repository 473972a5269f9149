"""Published training runs next to their predictions: steps, peaks of memory and whole trainings, for a terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from predict.interval import Interval
from predict.reports.compared import beside, counts, furthest, itself, refused, share, shares
from predict.reports.money import span_text
from predict.reports.printed import Renderable, Table
from predict.reports.ranking import reliability_table
from predict.reports.text import Columns, escape, figures_table, stacked, table
from predict.run.calibration_terms import Posterior
from predict.serialise import as_json
from predict.validation import memory, published_scores
from predict.validation.compared import Compared, Refused, scores
from predict.validation.jobs import ComparedFigure, ComparedJob
from predict.validation.published import ComparedRun, Comparison, configurations
from sampling.files.faults import counted
from sampling.number_text import percent, plain, signed_percent, significant, size, whole_percent
from sampling.units import SECOND_US

ERRORS = "errors: predicted over measured, less 1; repeats of one configuration count once, by their median"
MOST_ROWS = 60
"""Rows above which only the summary and the worst are printed; `--json` has all of them."""
PERCENT = {"mean": "mean_error_percent", "median": "median_error_percent", "bias": "bias_percent"}


def published_text(comparisons: Sequence[ComparedRun], calibration: Posterior | None = None) -> Renderable:
    predicted = [one for one in comparisons if isinstance(one, Comparison)]
    once = configurations(comparisons)
    parts: list[Renderable] = []
    if 0 < len(predicted) <= MOST_ROWS:
        parts += [_published_rows("predicted and measured", predicted), ""]
    if once:
        parts += [_published_figures(ERRORS, list(published_scores.summary(once))), "", *_beside_constant_mfu(once), ""]
    worst = furthest(once, itself)
    if len(once) > len(worst):
        title = f"the {len(worst)} furthest off, and what is not known of them"
        parts += [_published_rows(title, worst, {"why it may be": _why_off}), ""]
    reasons = [(one.row.row_id, one.why) for one in comparisons if isinstance(one, Refused)]
    parts += [*refused("not expressible", reasons)[1:], ""] if reasons else []
    if calibration:
        parts += [_calibration(calibration), ""]
    if once:
        title = "by class: what is modelled, and how much of the run its row states"
        parts.append(_published_figures(title, published_scores.classes(once)))
        slope = published_scores.slope_of_strong_scaling(once)
        if slope is not None:
            parts.append(
                f"runs of at most {published_scores.FEW} microbatches: the error changes by {signed_percent(slope)} with each doubling of the GPUs"
            )
    return stacked(*parts)


def _published_rows(title: str, rows: Sequence[Comparison], notes: Columns[Comparison] | None = None) -> Table:
    names: Columns[Comparison] = {
        "row": lambda one: one.row.row_id,
        "model": lambda one: one.row.text("model"),
        "GPUs": lambda one: f"{one.row.text('n_gpus')} {one.row.text('gpu')}",
    }
    return table(title, rows, names, beside(itself), notes)


def _why_off(one: Comparison) -> str:
    """The features of the row that are unknown, or known to vary."""
    row, precision = one.row, one.row.text("precision").lower()
    causes = {
        one.assumed: bool(one.assumed),
        "dispatcher, graphs and imbalance of a mixture": bool(row.number("experts")),
        "fp8 recipe not published": "fp8" in precision and not any(name in precision for name in ("mx", "cs")),
        f"task: {row.text('task')}": row.text("task") not in ("", "pretrain"),
        row.text("notes")[:60]: bool(row.text("notes")),
    }
    return "; ".join(cause for cause, holds in causes.items() if holds)


def _published_figures(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = {
        **counts({"rows": "rows", "measured": "measurements"}),
        **shares(PERCENT, whole=100),
        "in 90 % interval": lambda row: whole_percent(row["coverage"]),
        "log half-width": lambda row: significant(row["log_half_width"]),
    }
    return table(title, [row for row in rows if row["rows"]], OF, columns)


OF: Columns[Mapping[str, Any]] = {"of": lambda row: " ".join(row["key"])}


def _beside_constant_mfu(once: Sequence[Comparison]) -> list[Renderable]:
    judged = [one for one in published_scores.beside_constant_mfu(once) if not math.isnan(one.constant_mfu_error)]
    title = "against a constant MFU: each run at the median measured MFU of its source's other runs"
    order = ("pairs", "in order", "by FLOPs", "same work", "in order", "by FLOPs")
    found = figures_table(title, ("source",), ("rows", "mean error", "constant MFU", *order))
    for one in judged:
        found.add_row(escape(one.source), *_source_cells(one))
    wins = sum(one.better for one in judged)
    return [
        found,
        f"The prediction is nearer than a constant MFU in {wins} of {counted(len(judged), 'source')}. Pairs are more than "
        "5 % apart; a constant MFU orders them by FLOPs over peak. Pairs of the same work have model, batch and GPUs in "
        "common and differ in plan or settings.",
    ]


def _source_cells(one: published_scores.SourceResult) -> list[str]:
    error = share(one.error) + ("" if one.better else " (worse)")
    return [
        str(one.configurations),
        error,
        share(one.constant_mfu_error),
        *_order_cells(one.order),
        *_order_cells(one.order_of_one_work),
    ]


def _order_cells(order: published_scores.PairOrder) -> tuple[str, str, str]:
    if not order.pairs:
        return "0", "", ""
    return str(order.pairs), whole_percent(order.ours / order.pairs), whole_percent(order.constant_mfu / order.pairs)


def _calibration(posterior: Posterior) -> str:
    terms = ", ".join(f"{name} × {significant(value)}" for name, value in posterior.terms.moved.items())
    left_out = posterior.left_out_percent
    off = "" if left_out is None else f"; each {percent(left_out / 100)} off as predicted from the others"
    return f"calibrated on {counted(len(posterior.runs), 'row')}{off}: {terms}"


NO_MEMORY = "no row states its memory: the columns are peak_mem_gib, or mem_allocated_bytes and mem_max_allocated_bytes"


def published_memory_text(comparisons: Sequence[memory.MemoryOutcome]) -> Renderable:
    if not comparisons:
        return NO_MEMORY
    predicted = [one for one in comparisons if isinstance(one, memory.MemoryComparison)]
    figures = {
        **counts({name: name for name in ("rows", "families", "distinct")}),
        **shares(PERCENT, whole=100),
        **counts({"wrongly FITS": "fits_in_vain"}),
    }
    columns = beside(itself, size)
    return stacked(
        table(
            "memory: predicted over measured, less 1; each counter by itself",
            memory.memory_summary(comparisons),
            OF,
            figures,
        ),
        "",
        table(
            "the furthest off",
            furthest(predicted, itself),
            {
                "row": lambda one: one.row.run.row_id,
                "model": lambda one: one.row.run.text("model") or one.row.run.text("test_case"),
                "GPUs": lambda one: f"{one.row.run.text('n_gpus')} {one.row.run.text('gpu')}",
                "figure": lambda one: one.row.figure,
                "counter": lambda one: one.row.counter,
            },
            {name: columns[name] for name in ("predicted", "measured", "error")} | {"verdict": lambda one: one.verdict},
        ),
        *refused(
            "not expressible",
            dict.fromkeys((one.row.run.row_id, one.why) for one in comparisons if isinstance(one, Refused)),
        ),
        "",
        table(
            "by class: figure, counter and size; a family of alike runs counts once",
            memory.memory_classes(comparisons),
            OF,
            figures,
        ),
        "",
        reliability_table(as_json(memory.memory_reliability(comparisons))),
    )


# Whole trainings.


def jobs_text(found: Sequence[ComparedJob]) -> Renderable:
    """Figures of published jobs beside their predictions."""
    compared = [one for one in found if isinstance(one, ComparedFigure)]
    figures = scores(compared)
    errors = ""
    if figures.mean is not None and figures.coverage is not None:
        errors = f"{counted(figures.rows, 'figure')}: mean error {percent(figures.mean)}, worst {share(figures.worst)}, {whole_percent(figures.coverage)} inside the 90 % interval"
    return stacked(
        table(
            "published jobs",
            compared,
            {"job": lambda one: one.row_id, "figure": lambda one: one.figure},
            {
                "published": lambda one: f"{'≥ ' if one.at_least else ''}{span_text(Interval.exactly(one.measured))}",
                "predicted": lambda one: span_text(one.predicted),
                "error": lambda one: signed_percent(one.error),
                "": lambda one: "" if one.covered else "outside",
            },
        ),
        "",
        errors,
        *refused("not predicted", [(one.row.row_id, one.why) for one in found if isinstance(one, Refused)]),
    )


# Published RL steps next to predicted ones, for a terminal.


def rl_validation_text(content: Mapping[str, Any]) -> Renderable:
    """The content of `predict validate rl --json` for a terminal."""
    rows = content["rows"]
    reasons = [(row["row_id"], row["reason"]) for row in rows if row["reason"]]
    order = content.get("order")
    return stacked(
        f"{counted(len(rows), 'row')}, {len(reasons)} of which cannot be expressed; size of predicted over measured, less 1",
        "",
        _phases(content["summary"]),
        *_apart(
            content.get("summary_of_open_lengths", {}),
            "rows without a published mean of their responses' lengths, over likely ones",
        ),
        *_apart(content["summary_in_sample"], "in-sample: times that a term of the prediction was read from"),
        "",
        _rl_rows(rows),
        *(f"{row['row_id']}: {escape(row['doubt'])}" for row in rows if row.get("doubt")),
        *(
            ["", f"faster placement predicted in {whole_percent(order['right'])} of {counted(order['pairs'], 'pair')}"]
            if order and order["pairs"]
            else []
        ),
        *_factors(content.get("factors", {})),
        *refused("not expressible", reasons),
    )


def _factors(factors: Mapping[str, Any]) -> list[str]:
    """The shipped factors, and those that the rows they were fitted to give today; nothing without such rows."""
    if not factors.get("refit"):
        return []
    text = {
        name: f"{significant(each['rollout'])} on generation, {significant(each['update'])} on updates, {significant(each['passes'])} on passes, "
        f"half-width {significant(each['half_width'])}"
        for name, each in factors.items()
    }
    return ["", f"factors: {text['shipped']}; refitted to these rows: {text['refit']}"]


def _apart(summary: Mapping[str, Any], heading: str) -> list[Renderable]:
    """Figures over rows that the first summary leaves out, under a heading; nothing where there are none."""
    if not any(figures["rows"] for figures in summary.values()):
        return []
    return ["", heading, "", _phases(summary)]


def _phases(summary: Mapping[str, Any]) -> Table:
    rows = [{"name": name, **figures} for name, figures in summary.items()]
    figures = {"mean": "mean", "median": "median", "bias": "bias", "in 90 % interval": "coverage"}
    return table("", rows, {"phase": lambda row: row["name"]}, {**counts({"rows": "rows"}), **shares(figures)})


def _rl_rows(rows: Sequence[Mapping[str, Any]]) -> Table:
    return table(
        "",
        [(row, name, phase) for row in rows for name, phase in row["phases"].items()],
        {
            "row": lambda one: one[0]["row_id"],
            "model": lambda one: one[0]["model"],
            "GPUs": lambda one: f"{plain(one[0]['gpus'])} {one[0]['gpu']}" if one[0]["gpus"] else "",
            "placement": lambda one: one[0]["mode"],
            "phase": lambda one: f"{one[1]} (in-sample)" if one[2]["in_sample"] else one[1],
        },
        {heading: cell for heading, cell in beside(_phase_of).items() if heading != "inside"},  # for lack of room
    )


def _phase_of(one: tuple[Mapping[str, Any], str, Mapping[str, Any]]) -> Compared:
    phase = one[2]
    times = Interval(median=phase["predicted_s"], low=phase["low_s"], high=phase["high_s"])
    return Compared(predicted=times.scaled(SECOND_US), measured=SECOND_US * phase["measured_s"])
