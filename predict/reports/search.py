"""The answer of a search of any kind of config, in a terminal and as JSON."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from predict.kinds import RL, SERVING, TRAINING, kind
from predict.plan_search.answer import Answer, FrontPlan, RankedPlan, RankedPrediction, RankedRows, SearchAnswer, tied
from predict.plan_search.long_table import as_csv
from predict.plan_search.search import SHORT, in_words, settings_json
from predict.reports import search_columns
from predict.reports.money import ASSUMED_GOODPUT, tokens_text
from predict.reports.printed import Renderable, Table
from predict.reports.sweep import REPORTS, count_text, reasons_text, value_text
from predict.reports.text import escape, figures_table, first_lines_of, first_that_fits, hanging, stacked
from predict.serialise import versioned
from sampling.files.faults import counted
from sampling.number_text import duration, percent, seconds, signed_percent, size, whole_percent
from sampling.units import GIB

# The answer of a search as `predict search --json` prints it; `version` changes when a key changes its meaning.

FORMATS = {TRAINING: "search", RL: "rl-search", SERVING: "serving-search"}


def answer_json(answer: SearchAnswer, *, why: bool = False) -> dict[str, Any]:
    """The answer of any kind of config. Times in µs, sizes in bytes, shares as fractions; with `why`, an example of each reason."""
    rows, columns = _placed(answer)
    best = [search_columns.as_content(columns, row) for row in rows]
    if len(best) > 1:
        best[0]["tied"] = bool(tied(answer))
    content: dict[str, Any] = {
        **_facts_of_rows(answer),
        "objective": answer.objective,
        "space": answer.space,
        "seconds": answer.seconds,
        "complete": answer.complete,
        "best": best,
        "left_out": {reason: left.count for reason, left in answer.left_out.items()},
        **_results_of_plans(answer, best),
    }
    if why:
        content["why"] = {reason: left.example for reason, left in answer.left_out.items()}
    return versioned(FORMATS[answer.kind], content)


def _facts_of_rows(answer: SearchAnswer) -> Mapping[str, Any]:
    """The config and its varied keys, of a search that predicts every combination."""
    if not isinstance(answer, RankedRows):
        return {}
    varied = {each.path: each.values for each in answer.swept.varied}
    return {**REPORTS[answer.kind].head(answer.swept), "varied": varied}


def _results_of_plans(answer: SearchAnswer, best: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
    """The results that only a search of training plans has; measured steps are put beside the `best`."""
    if not isinstance(answer, Answer):
        return {}
    found: dict[str, Any] = {"experiment": answer.experiment or None}
    if answer.front is not None:
        found["pareto"] = [front_row(plan) for plan in answer.front]
    if answer.measured_us:
        for plan, measured_us in zip(best, answer.measured_us, strict=False):
            plan["measured_us"] = measured_us
        found["regret"] = answer.regret
    return found


def _placed(
    answer: SearchAnswer,
) -> tuple[list[search_columns.Placed[Any]], search_columns.Columns[search_columns.Placed[Any]]]:
    """The best with their places, and the columns of their figures."""
    rows = [search_columns.Placed(place=place, plan=plan) for place, plan in enumerate(answer.ranked, 1)]
    if isinstance(answer, Answer):
        own = search_columns.plan_columns(with_cost=answer.plans[0].cost is not None)
    else:
        own = search_columns.of_predictions(REPORTS[answer.kind].columns(rows[0].prediction))
    return rows, search_columns.ranked(kind(answer.kind), own)


def front_row(plan: FrontPlan) -> dict[str, Any]:
    """A plan of the front, as a row of a table."""
    return {
        "step_time_s": plan.step_us / 1e6,
        "us_per_token": plan.us_per_token,
        "memory_gib": plan.memory_bytes / GIB,
        "gpus": plan.gpus,
        **settings_json(plan.settings),
    }


MOST_OF_SAME = 3
"""Plans of the same time and memory that are named."""
LEAST = ("J/token", "free", "MFU", "tok/s\n/GPU")
"""Headings that a narrow terminal leaves out, the first of them first."""
MOST_OF_FRONT = 20
"""Plans of the front that a terminal shows; the file has all."""


def answer_text(answer: SearchAnswer, *, why: bool = False) -> Renderable:
    """The rows that the best rest on, the ranking, the ties, and what is left out by reason."""
    return _plans_text(answer, why=why) if isinstance(answer, Answer) else _rows_text(answer)


def _plans_text(answer: Answer, *, why: bool) -> Renderable:
    """Training plans: what would separate the ties too, and the front where it was asked for."""
    notes = (
        *_closed(answer),
        *_training(answer.plans[0]),
        *_at_risk(answer),
        *_same(answer.plans),
        *_ties(answer),
    )
    parts: list[Renderable] = [
        *first_lines_of(answer.plans[0].prediction),
        escape(_question(answer)),
        _ranking(answer, several_clusters=len(answer.found.surveys) > 1),
        *map(escape, notes),
    ]
    if answer.measured_us:
        parts += ["", *map(escape, _measured(answer))]
    if answer.front is not None:
        parts += ["", _front(answer.front)]
    return stacked(*parts, "", *_summary(answer, why=why))


def _rows_text(answer: SearchAnswer) -> Renderable:
    """Combinations of another kind of config."""
    assert isinstance(answer, RankedRows)
    report, predictions = REPORTS[answer.kind], [row.prediction for row in answer.best]
    notes = [escape(line) for line in report.after(predictions, None)]
    return stacked(
        *report.before(predictions),
        escape(count_text(answer.swept)),
        _ranking(answer),
        *map(escape, _ties(answer)),
        *reasons_text(answer.swept),
        *(["", *notes] if notes else []),
    )


def _question(answer: Answer) -> str:
    """The run that is searched, by what all its plans have in common."""
    runs = [plan.prediction.run for plan in answer.plans]
    first = runs[0]
    parts = [f"{first.name}: {first.model.name}"]
    for unit, values in (
        ("sequences per step", {run.batch.global_ for run in runs}),
        ("tokens each", {run.batch.seq_len for run in runs}),
    ):
        if len(values) == 1:
            parts.append(f"{values.pop():,} {unit}")
    for shared in ({run.precision for run in runs}, {f"as {run.execution.framework} runs it" for run in runs}):
        parts += shared if len(shared) == 1 else ()
    return ", ".join(parts)


def _varying(plans: Sequence[RankedPrediction[Any]]) -> list[str]:
    """The searched keys, first those of the degrees; keys that have one value in all plans are named once, above the table."""
    paths = list(dict.fromkeys(path for plan in plans for path in plan.settings))
    return [path for path in paths if len({str(plan.settings.get(path)) for plan in plans}) > 1]


def _ranking(answer: SearchAnswer, *, several_clusters: bool = False) -> Renderable:
    plans, (rows, columns) = answer.ranked, _placed(answer)
    varying = _varying(plans)
    same = {path: value for path, value in plans[0].settings.items() if path not in varying}
    names = ["", *(["cluster"] if several_clusters else []), *map(_name, varying)]
    title = escape(f"the best by {answer.meaning}" + (f"; all: {in_words(same)}" if same else ""))

    def without(least: Collection[str]) -> Table:
        kept = [column for column in columns if column.heading not in least]
        table = figures_table("", names, search_columns.headings(kept), keys=1)
        for row in rows:
            plan = row.plan
            mark = f"{row.place}{' =' if row.tied else ''}"
            cluster = [_cluster(plan)] if several_clusters else []
            values = [mark, *cluster, *(escape(value_text(plan.settings.get(path))) for path in varying)]
            table.add_row(*values, *search_columns.cells(kept, row))
        return table

    return stacked(f"[bold]{title}[/]", first_that_fits(*(without(LEAST[:count]) for count in range(len(LEAST) + 1))))


def _name(path: str) -> str:
    return SHORT.get(path, path.partition(".")[2])


def _cluster(plan: RankedPrediction[Any]) -> str:
    cluster = plan.prediction.run.cluster
    return f"{cluster.world_size} × {cluster.gpu.name}"


def _training(best: RankedPlan) -> Iterator[str]:
    """The whole training that hours, days and money are of; goodput is the same for all plans."""
    if cost := best.cost:
        yield (
            f"GPU-hours and what follows them are for {tokens_text(cost.tokens)} tokens; {whole_percent(cost.goodput)} of the time goes into "
            f"steps that are kept ({ASSUMED_GOODPUT}; `predict days --goodput` takes another)."
        )


def _at_risk(answer: Answer) -> Iterator[str]:
    if answer.faster_at_risk:
        first = answer.faster_at_risk[0]
        free = f"{size(first.prediction.memory.headroom_bytes)} free"
        yield (
            f"Not listed: {counted(len(answer.faster_at_risk), 'plan')} at risk of not fitting, better by up to {percent(1 - first.ratio.median)}, "
            f"such as {in_words(first.settings)} ({duration(first.prediction.median_us)} per step, {free})."
        )
    if any(plan.prediction.memory.verdict == "AT RISK" for plan in answer.plans):
        yield (
            "at risk: the expected peak of the memory fits, but with a probability of less than 95 %; plans that may be as good as the best "
            "and are not at risk stand before them."
        )


def _same(plans: Sequence[RankedPlan]) -> Iterator[str]:
    """A line for each plan that stands for others."""
    for place, plan in enumerate(plans, 1):
        if plan.same:
            others = "; ".join(in_words(settings) for settings in plan.same[:MOST_OF_SAME])
            more = f"; {len(plan.same) - MOST_OF_SAME} more" if len(plan.same) > MOST_OF_SAME else ""
            yield f"Plan {place} stands for {counted(len(plan.same), 'other')} of the same time and memory, with {others}{more}."


def _ties(answer: SearchAnswer) -> Iterator[str]:
    how = (
        "judged by the 90 % interval of their ratio, in which errors common to both cancel"
        if answer.timed
        else "the same within rounding"
    )
    if not tied(answer):
        if len(answer.ranked) > 1:
            yield f"No other plan may be as good as the best one by {answer.meaning} ({how})."
        return
    many = counted(len(tied(answer)), "other plan")
    yield f"{many} (marked =) may be as good as the best by {answer.meaning}: {how}."
    if answer.experiment:
        yield f"To separate them: {answer.experiment}."


def _measured(answer: Answer) -> Iterator[str]:
    for place, (plan, measured_us) in enumerate(zip(answer.plans, answer.measured_us, strict=False), 1):
        predicted_us = plan.prediction.median_us
        said = (
            "not measured"
            if measured_us is None
            else f"{duration(measured_us)}, predicted {signed_percent(predicted_us / measured_us - 1)}"
        )
        yield f"plan {place} measured: {said}"
    if answer.regret is not None:
        yield f"The first plan takes {percent(answer.regret)} longer than the fastest of those measured."


def _front(front: Sequence[FrontPlan]) -> Renderable:
    table = figures_table(
        f"front of time, memory and GPUs: {counted(len(front), 'plan')}", ["plan"], ["step time", "memory", "GPUs"]
    )
    for plan in front[:MOST_OF_FRONT]:
        figures = (duration(plan.step_us), size(plan.memory_bytes), str(plan.gpus))
        table.add_row(in_words(plan.settings), *figures)
    return table


def _closed(answer: Answer) -> Iterator[str]:
    """A line on opening keys where none is open, so that the answer is the config's own plan."""
    if len(answer.found.surveys) == 1 and not answer.plans[0].settings:
        yield (
            "No key of the config is open, so this is its own plan. `--set plan=auto` opens every key of the plan; `--set plan.tp=1..8` and "
            "`--set batch.micro=auto` open one each."
        )


def _summary(answer: Answer, *, why: bool) -> Iterator[str]:
    found, space = answer.found, answer.space
    misfits = f", {found.misfits:,} of which expect more than the memory," if found.misfits else ""
    yield (
        f"{counted(space['plans'], 'plan')}, {space['legal']:,} legal, {space['fit'] + found.misfits:,} within the memory by their floor, {space['priced']:,} "
        f"priced in full{misfits} in {seconds(found.seconds)}"
        + ("" if found.complete else "; interrupted: better plans may be among the others")
    )
    if not found.left_out:
        return
    yield "left out, by reason" + ("" if why else " (--why: with an example of each)")
    for reason, left in sorted(found.left_out.items(), key=lambda item: -item[1].count):
        yield hanging(f"  {left.count:>14,}  ", escape(reason))
        if why:
            yield hanging(f"{'':18}", escape(left.example))


# The front of time, memory and GPUs as a file.


def front_file(front: Sequence[FrontPlan], suffix: str) -> str:
    """The text of a .csv or .json file, a row per plan."""
    rows = [front_row(plan) for plan in front]
    if suffix == ".json":
        return json.dumps(rows, indent=1) + "\n"
    return as_csv(rows, list(dict.fromkeys(name for row in rows for name in row)))
