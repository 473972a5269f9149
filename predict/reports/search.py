"""The answer of a search for a reader in a terminal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from predict.kinds import TRAINING, kind
from predict.plan_search.answer import Answer, FrontPlan, RankedPlan
from predict.plan_search.search import SHORT, Found, in_words
from predict.reports.money import ASSUMED_GOODPUT, goodput_text, tokens_text
from predict.reports.search_columns import (
    Columns,
    PlacedPlan,
    as_content,
    cells,
    common_to_all,
    headings,
    plan_columns,
    settings_json,
)
from predict.reports.text import figures_table, first_lines_of, first_that_fits
from predict.serialise import version_of
from sampling.files.faults import counted
from sampling.number_text import duration, signed_percent
from sampling.units import GIB

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


# The answer of a search as `predict search --json` prints it; `version` changes when a key changes its meaning.


def answer_json(answer: Answer, *, why: bool = False) -> dict[str, Any]:
    """Times in µs, sizes in bytes, shares as fractions; with `why`, an example of each reason."""
    found, (rows, columns) = answer.found, _placed(answer)
    content: dict[str, Any] = {
        "version": version_of("search"),
        "objective": found.objective.name,
        "space": space_json(found),
        "seconds": found.seconds,
        "complete": found.complete,
        "best": [as_content(columns, row) for row in rows],
        "experiment": answer.experiment or None,
        "left_out": {reason: left.count for reason, left in found.left_out.items()},
    }
    if answer.plans and len(answer.plans) > 1:
        content["best"][0]["tied"] = bool(answer.tied)
    if answer.front is not None:
        content["pareto"] = [front_row(plan) for plan in answer.front]
    if answer.measured_us:
        for best, measured_us in zip(content["best"], answer.measured_us, strict=False):
            best["measured_us"] = measured_us
        content["regret"] = answer.regret
    if why:
        content["why"] = {reason: left.example for reason, left in found.left_out.items()}
    return content


def space_json(found: Found) -> dict[str, int]:
    return {
        "plans": sum(own.space.plans for own in found.surveys),
        "legal": sum(own.legal for own in found.surveys),
        "fit": found.fit,
        "priced": found.priced,
    }


def _placed(answer: Answer) -> tuple[list[PlacedPlan], Columns[PlacedPlan]]:
    """The plans with their places, and the columns of their figures."""
    rows = [PlacedPlan(place=place, plan=plan) for place, plan in enumerate(answer.plans, 1)]
    common = common_to_all(kind(TRAINING), lambda row: row.prediction)
    return rows, [*plan_columns(with_cost=rows[0].plan.cost is not None), *common]


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


def answer_text(answer: Answer, *, why: bool = False) -> RenderableType:
    """The rows that the best plan rests on, the ranking, the ties and what would separate them, the front where it was asked for,
    and the plans left out by reason."""
    from rich.console import Group
    from rich.markup import escape

    notes = (
        *_closed(answer),
        *_training(answer.plans[0]),
        *_at_risk(answer.plans),
        *_same(answer.plans),
        *_ties(answer),
    )
    parts: list[RenderableType] = [
        *_provenance_lines(answer),
        escape(_question(answer)),
        _ranking(answer),
        *map(escape, notes),
    ]
    if answer.measured_us:
        parts += ["", *map(escape, _measured(answer))]
    if answer.front is not None:
        parts += ["", _front(answer.front)]
    parts += ["", *map(escape, _summary(answer.found, why=why))]
    return Group(*parts)


def _provenance_lines(answer: Answer) -> list[str]:
    best = answer.plans[0].prediction
    return first_lines_of(best)


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


def _varying(plans: Sequence[RankedPlan]) -> list[str]:
    """The searched keys, first those of the degrees; keys that have one value in all plans are printed once, above the table."""
    paths = list(dict.fromkeys(path for plan in plans for path in plan.settings))
    return [path for path in paths if len({str(plan.settings.get(path)) for plan in plans}) > 1]


def _ranking(answer: Answer) -> RenderableType:
    plans, (rows, columns) = answer.plans, _placed(answer)
    varying = _varying(plans)
    same = {path: value for path, value in plans[0].settings.items() if path not in varying}
    gpus = len({_cluster(plan) for plan in plans}) > 1
    names = ["", *(["cluster"] if gpus else []), *map(_name, varying)]
    title = f"the best by {answer.found.objective.meaning}" + (f"; all: {in_words(same)}" if same else "")

    def without(least: Collection[str]) -> Table:
        kept = [column for column in columns if column.heading not in least]
        table = figures_table(title, names, headings(kept))
        for row in rows:
            plan = row.plan
            mark = f"{row.place}{' =' if row.tied else ''}"
            values = [mark, *([_cluster(plan)] if gpus else []), *(_value(plan.settings.get(path)) for path in varying)]
            table.add_row(*values, *cells(kept, row))
        return table

    return first_that_fits(*(without(LEAST[:count]) for count in range(len(LEAST) + 1)))


def _name(path: str) -> str:
    return SHORT.get(path, path.partition(".")[2])


def _value(value: Any) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _cluster(plan: RankedPlan) -> str:
    cluster = plan.prediction.run.cluster
    return f"{cluster.world_size} × {cluster.gpu.name}"


def _training(best: RankedPlan) -> Iterator[str]:
    """The whole training that hours, days and money are of; goodput is the same for all plans."""
    if cost := best.cost:
        other = "`predict days --goodput` takes another"
        yield f"GPU-hours and what follows them are for {tokens_text(cost.tokens)} tokens; {goodput_text(cost, f'{ASSUMED_GOODPUT}; {other}')}."


def _at_risk(plans: Sequence[RankedPlan]) -> Iterator[str]:
    if any(plan.prediction.memory.verdict == "AT RISK" for plan in plans):
        yield "at risk: the expected peak of the memory fits, but with a probability of less than 95 %."


def _same(plans: Sequence[RankedPlan]) -> Iterator[str]:
    """A line for each plan that stands for others."""
    for place, plan in enumerate(plans, 1):
        if plan.same:
            others = "; ".join(in_words(settings) for settings in plan.same[:MOST_OF_SAME])
            more = f"; {len(plan.same) - MOST_OF_SAME} more" if len(plan.same) > MOST_OF_SAME else ""
            yield f"Plan {place} stands for {counted(len(plan.same), 'other')} of the same time and memory, with {others}{more}."


def _ties(answer: Answer) -> Iterator[str]:
    objective = answer.found.objective
    how = (
        "judged by the 90 % interval of the ratio of their times, in which errors common to both cancel"
        if objective.timed
        else "the same within rounding"
    )
    if not answer.tied:
        if len(answer.plans) > 1:
            yield f"No other plan may be as good as the best one by {objective.meaning} ({how})."
        return
    many = counted(len(answer.tied), "other plan")
    yield f"{many} (marked =) may be as good as the best by {objective.meaning}: {how}."
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
        yield f"The first plan takes {answer.regret:.1%} longer than the fastest of those measured."


def _front(front: Sequence[FrontPlan]) -> RenderableType:
    table = figures_table(
        f"front of time, memory and GPUs: {counted(len(front), 'plan')}", ["plan"], ["step time", "memory", "GPUs"]
    )
    for plan in front[:MOST_OF_FRONT]:
        figures = (duration(plan.step_us), f"{plan.memory_bytes / GIB:.1f} GiB", str(plan.gpus))
        table.add_row(in_words(plan.settings), *figures)
    return table


def _closed(answer: Answer) -> Iterator[str]:
    """A line on opening keys where none is open, so that the answer is the config's own plan."""
    if len(answer.found.surveys) == 1 and not answer.plans[0].settings:
        yield (
            "No key of the config is open, so this is its own plan. `--set plan=auto` opens every key of the plan; `--set plan.tp=1..8` and "
            "`--set batch.micro=auto` open one each."
        )


def _summary(found: Found, *, why: bool) -> Iterator[str]:
    space = space_json(found)
    misfits = f", {found.misfits:,} of which do not fit," if found.misfits else ""
    yield (
        f"{counted(space['plans'], 'plan')}, {space['legal']:,} legal, {space['fit'] + found.misfits:,} may fit in memory, {space['priced']:,} "
        f"priced in full{misfits} in {found.seconds:.1f} s"
        + ("" if found.complete else "; interrupted: better plans may be among the others")
    )
    if not found.left_out:
        return
    yield "left out, by reason" + ("" if why else " (--why: with an example of each)")
    for reason, left in sorted(found.left_out.items(), key=lambda item: -item[1].count):
        yield f"  {left.count:>14,}  {reason}"
        if why:
            yield f"                  {left.example}"


# The front of time, memory and GPUs as a file.


def front_file(front: Sequence[FrontPlan], suffix: str) -> str:
    """The text of a .csv or .json file, a row per plan."""
    rows = [front_row(plan) for plan in front]
    if suffix == ".json":
        return json.dumps(rows, indent=1) + "\n"
    text = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
