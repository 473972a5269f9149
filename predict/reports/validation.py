"""Measurements that others made next to predictions: published steps, peaks of memory, orders of plans, servers and RL
steps, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from predict.interval import Interval
from predict.reports.compared import (
    INTERVAL,
    LATENCIES,
    NOTHING,
    beside,
    counts,
    furthest,
    refused,
    share,
    shares,
)
from predict.reports.money import span_text
from predict.reports.text import Columns, escape, figures_table, stacked, table
from predict.run.calibration_terms import Posterior
from predict.serialise import as_json
from predict.validation.compared import Compared, Refused, scores
from predict.validation.jobs import ComparedFigure, ComparedJob
from predict.validation.memory import (
    MemoryComparison,
    MemoryOutcome,
    memory_classes,
    memory_reliability,
    memory_summary,
)
from predict.validation.published import ComparedRun, Comparison, configurations
from predict.validation.published_scores import (
    FEW,
    PairOrder,
    SourceResult,
    beside_constant_mfu,
    classes,
    slope_of_strong_scaling,
    summary,
)
from predict.validation.published_servers import ComparedServer, PublishedServer
from predict.validation.ranking import LEAST_TIMED
from sampling.files.faults import counted
from sampling.number_text import Show, multiple, percent, plain, signed_percent, significant, size, whole_percent
from sampling.units import SECOND_US

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

ERRORS = "errors: predicted over measured, less 1; repeats of one configuration count once, by their median"
MOST_ROWS = 60
"""Rows above which only the summary and the worst are printed; `--json` has all of them."""
PERCENT = {"mean": "mean_error_percent", "median": "median_error_percent", "bias": "bias_percent"}


def published_text(comparisons: Sequence[ComparedRun], calibration: Posterior | None = None) -> RenderableType:
    predicted = [one for one in comparisons if isinstance(one, Comparison)]
    once = configurations(comparisons)
    parts: list[RenderableType] = []
    if 0 < len(predicted) <= MOST_ROWS:
        parts += [_published_rows("predicted and measured", predicted), ""]
    if once:
        parts += [_published_figures(ERRORS, list(summary(once))), "", *_beside_constant_mfu(once), ""]
    worst = furthest(once, _itself)
    if len(once) > len(worst):
        title = f"the {len(worst)} furthest off, and what is not known of them"
        parts += [_published_rows(title, worst, {"why it may be": _why_off}), ""]
    reasons = [(one.row.row_id, one.why) for one in comparisons if isinstance(one, Refused)]
    parts += [*refused("not expressible", reasons)[1:], ""] if reasons else []
    if calibration:
        parts += [_calibration(calibration), ""]
    if once:
        title = "by class: what is modelled, and how much of the run its row states"
        parts.append(_published_figures(title, classes(once)))
        slope = slope_of_strong_scaling(once)
        if slope is not None:
            parts.append(
                f"runs of at most {FEW} microbatches: the error changes by {signed_percent(slope)} with each doubling of the GPUs"
            )
    return stacked(*parts)


def _itself(one: Compared) -> Compared:
    return one


def _published_rows(title: str, rows: Sequence[Comparison], notes: Columns[Comparison] | None = None) -> Table:
    names: Columns[Comparison] = {
        "row": lambda one: one.row.row_id,
        "model": lambda one: one.row.text("model"),
        "GPUs": lambda one: f"{one.row.text('n_gpus')} {one.row.text('gpu')}",
    }
    return table(title, rows, names, beside(_itself), notes)


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


def _beside_constant_mfu(once: Sequence[Comparison]) -> list[RenderableType]:
    judged = [one for one in beside_constant_mfu(once) if not math.isnan(one.constant_mfu_error)]
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


def _source_cells(one: SourceResult) -> list[str]:
    error = share(one.error) + ("" if one.better else " (worse)")
    return [
        str(one.configurations),
        error,
        share(one.constant_mfu_error),
        *_order_cells(one.order),
        *_order_cells(one.order_of_one_work),
    ]


def _order_cells(order: PairOrder) -> tuple[str, str, str]:
    if not order.pairs:
        return "0", "", ""
    return str(order.pairs), whole_percent(order.ours / order.pairs), whole_percent(order.constant_mfu / order.pairs)


def _calibration(posterior: Posterior) -> str:
    terms = ", ".join(f"{name} × {significant(value)}" for name, value in posterior.terms.moved.items())
    left_out = posterior.left_out_percent
    off = "" if left_out is None else f"; each {percent(left_out / 100)} off as predicted from the others"
    return f"calibrated on {counted(len(posterior.runs), 'row')}{off}: {terms}"


NO_MEMORY = "no row states its memory: the columns are peak_mem_gib, or mem_allocated_bytes and mem_max_allocated_bytes"


def published_memory_text(comparisons: Sequence[MemoryOutcome]) -> RenderableType:
    if not comparisons:
        return NO_MEMORY
    predicted = [one for one in comparisons if isinstance(one, MemoryComparison)]
    figures = {
        **counts({name: name for name in ("rows", "families", "distinct")}),
        **shares(PERCENT, whole=100),
        **counts({"wrongly FITS": "fits_in_vain"}),
    }
    columns = beside(_itself, size)
    return stacked(
        table(
            "memory: predicted over measured, less 1; each counter by itself", memory_summary(comparisons), OF, figures
        ),
        "",
        table(
            "the furthest off",
            furthest(predicted, _itself),
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
            memory_classes(comparisons),
            OF,
            figures,
        ),
        "",
        reliability_table(as_json(memory_reliability(comparisons))),
    )


# Whole trainings.


def jobs_text(found: Sequence[ComparedJob]) -> RenderableType:
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


# Orders of measured plans.

RANKING_NOTE = (
    "τ is Kendall's τ-b on pairs more than 5 % apart; `same kernels` on those that agree in kernels and recomputation. Plans are "
    "launched in order of predicted time, those said to be out of memory last: `regret` is that of the first that runs, `launches` "
    "how many until one is within 2 % of the best, each that runs out of memory included. A random plan's regret and that of the "
    "best of five are expected ones among plans that run. The rule: fastest kernels, no recomputation, smallest microbatch, smallest tp · pp. "
    "`in 90 %`: steps inside their 90 % interval; `ratios`: pairs of plans whose measured ratio is inside the interval of the "
    "predicted one, by which `predict search` calls plans ties; `ties`: the same of the pairs that it calls so."
)


def ranking_text(content: Mapping[str, Any]) -> RenderableType:
    """The content of `predict validate ranking --json` for a terminal."""
    groups, small = content["groups"], content["smaller_groups"]
    rest: list[RenderableType] = []
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


# Measured serving runs.


def serving_validation_text(content: Mapping[str, Any]) -> RenderableType:
    """The content of `predict validate serving --json` for a terminal."""
    rows = content["rows"]
    judged = [row for row in rows if row["regime"] == "sub" and row["errors"]["e2e"] is not None]
    refitted = sum(bool(row["fitted_without"]) for row in rows)
    parts: list[RenderableType] = [
        f"model {content['model']}: {len(judged)} stages below saturation; an error is |predicted mean / measured mean − 1|, averaged over stages",
        f"{refitted} of {len(rows)} stages are predicted by coefficients that were fitted without their experiment",
        "",
        _stages(content),
        "",
        f"90 % interval of mean E2E covers {share(content['summary']['coverage'])} of the stages",
        "",
        _furthest_stages(judged),
    ]
    if content["by_left_out_model"]:
        parts += ["", _left_out_models(content["by_left_out_model"])]
    if content["capacities"]:
        parts += ["", _capacities(content["capacities"])]
    if content["closed_loop"]["by_group"]:
        parts += ["", _closed_loops(content["closed_loop"]), "", _engine_versions(content["closed_loop"])]
    return stacked(*parts, *refused("not predicted, or not judged", _without_figures(content)))


def _without_figures(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for one in content["refused"]:
        yield f"{one['experiment']}, stage {one['stage']}", one["why"]
    loops = content["closed_loop"]
    yield from chain.from_iterable(repeat((one["group"], one["why"]), one["rows"]) for one in loops["refused"])
    for name, one in loops["by_group"].items():
        yield from repeat((name, one["left_out"]), one["rows"] if one["left_out"] else 0)


def _stages(content: Mapping[str, Any]) -> Table:
    """The mean errors of all stages, then by GPU, by model and by source."""
    judged = sum(group["rows"] for group in content["by_gpu"].values())
    transfer, replay = content["transfer"], content["replay"]
    real = {"real requests": {"rows": replay["stages"], **replay}} if replay["stages"] else {}
    kinds: dict[str, Mapping[str, Any]] = {
        "all": {"": {"rows": judged, **content["summary"]}},
        "GPU": content["by_gpu"],
        f"fitted on {transfer['fitted_on']}": transfer["by_gpu"],
        "model": content["by_model"],
        "source": {name: group for name, group in content["by_source"].items() if name},
        "arrivals": real,
    }
    found = figures_table("mean errors", ("by", "of"), ("stages", *LATENCIES))
    for kind, groups in kinds.items():
        for place, (name, group) in enumerate(groups.items()):
            means = (share(group[figure]) for figure in LATENCIES.values())
            found.add_row(escape(kind) if not place else "", escape(name), str(group["rows"]), *means)
        if kind == "all":
            bias = (share(content["bias"][figure], write=signed_percent) for figure in LATENCIES.values())
            found.add_row("", "bias", "", *bias)
    return found


def _left_out_models(groups: Mapping[str, Any]) -> Table:
    return table(
        "TPOT at the measured load, by weights to which no stage of the model was fitted",
        [{"name": name, **group} for name, group in groups.items()],
        {"model": lambda row: row["name"]},
        {
            **counts({"stages": "rows"}),
            "TPOT": lambda row: share(row["tpot"]),
            "bias": lambda row: share(row["tpot_bias"], write=signed_percent),
        },
    )


def _furthest_stages(judged: Sequence[Mapping[str, Any]]) -> Table:
    errors = {title: _signed_error(figure) for title, figure in LATENCIES.items() if figure in ("ttft", "tpot")}
    return table(
        "the furthest off, mean E2E",
        furthest(judged, _e2e),
        {"experiment": lambda row: row["experiment"], "stage": lambda row: str(row["stage"])},
        {**beside(_e2e), **errors},
    )


def _signed_error(figure: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: share(row["errors"][figure], write=signed_percent)


def _e2e(row: Mapping[str, Any]) -> Compared:
    predicted = row["predicted_ms"]
    times = Interval(median=predicted["e2e"], low=predicted["e2e_low"], high=predicted["e2e_high"])
    return Compared(predicted=times.scaled(1e3), measured=1e3 * row["measured_ms"]["e2e"])


def _capacities(capacities: Sequence[Mapping[str, Any]]) -> Table:
    columns = beside(_capacity, significant, lambda low, high: f"{significant(low)} to {significant(high)}")
    return table(
        "capacity, requests per second",
        capacities,
        {
            "model": lambda one: f"{one['model']} tp {one['tp']}",
            "GPU": lambda one: one["gpu"],
            "load": lambda one: one["profile"],
        },
        {
            "predicted": columns["predicted"],
            INTERVAL: columns[INTERVAL],
            "measured": lambda one: significant(one["measured"]) if one["measured"] else _bracket(one),
            "error": lambda one: "within" if one["error"] == 0 else share(one["error"], write=signed_percent),
        },
    )


def _capacity(one: Mapping[str, Any]) -> Compared:
    return Compared(
        predicted=Interval(median=one["predicted"], low=one["low"], high=one["high"]), measured=one["measured"]
    )


def _bracket(one: Mapping[str, Any]) -> str:
    above = f"{plain(one['stable_rate'])} or more" if one["stable_rate"] else ""
    below = f"less than {plain(one['overloaded_rate'])}" if one["overloaded_rate"] else ""
    return ", ".join(filter(None, (above, below)))


def _closed_loops(content: Mapping[str, Any]) -> Table:
    rows = [
        {"name": f"{name} (not judged)" if group["left_out"] else name, **group}
        for name, group in content["by_group"].items()
    ]
    return table(
        "closed loops: so many requests in flight",
        [*rows, {"name": "all judged", **content["summary"]}],
        {"measured": lambda row: row["name"]},
        {**counts({"rows": "rows"}), **shares(OF_LOOPS)},
    )


def _engine_versions(content: Mapping[str, Any]) -> Table:
    return table(
        "closed loops by engine and version, each by figures to which none of its rows was fitted",
        [{"name": name, **errors} for name, errors in content["by_version"].items()],
        {"engine": lambda row: row["name"]},
        {**counts({"rows": "rows"}), **shares({**OF_LOOPS, "bias of TTFT": "ttft_bias"})},
    )


OF_LOOPS = {"TPOT": "tpot", "bias": "tpot_bias", "covered": "coverage", "TTFT": "ttft"}


# Published RL steps.


SERVER_FIGURES: Mapping[str, tuple[str, Show, Callable[[float, float], str]]] = {
    "prompts": ("tokens of prompts per second", plain, lambda low, high: f"{plain(low)} to {plain(high)}"),
    "answers": ("tokens of answers per second", plain, lambda low, high: f"{plain(low)} to {plain(high)}"),
    "speedup": (
        "gain of drafts",
        multiple,
        lambda low, high: f"{multiple(low)} to {multiple(high)}",
    ),
    "found": ("share of prompts in a cache", percent, lambda low, high: f"{percent(low)} to {percent(min(1.0, high))}"),
}
"""Figure of a server → its title, and how a value and bounds are shown."""


def published_servers_text(
    compared: Sequence[ComparedServer], not_served: Sequence[Refused[PublishedServer]]
) -> RenderableType:
    """The content of `predict validate servers` for a terminal."""
    parts: list[RenderableType] = []
    for figure, (title, show, among) in SERVER_FIGURES.items():
        rows = [one for one in compared if one.row.figure == figure]
        names: Columns[ComparedServer] = {
            "row": lambda one: one.row.row_id,
            "server": lambda one: f"{one.row.model} on {one.row.hardware}",
            "of": lambda one: counted(one.row.gpus, "GPU"),
        }
        if rows:
            parts += [table(title, rows, names, beside(_itself, show, among)), ""]
    parts += [f"{one.row.row_id}: {escape(one.row.explained)}" for one in compared if one.row.explained]
    whole = scores(compared)
    return stacked(
        *parts,
        *refused("not expressible", [(one.row.row_id, one.why) for one in not_served]),
        "",
        f"{counted(whole.rows, 'row')}: mean error {share(whole.mean)}, {share(whole.coverage)} inside their interval",
    )


def rl_validation_text(content: Mapping[str, Any]) -> RenderableType:
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


def _apart(summary: Mapping[str, Any], heading: str) -> list[RenderableType]:
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
