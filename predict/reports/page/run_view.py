"""Everything a page shows of one predicted run, in plain values: times in µs, sizes in bytes, shares as fractions."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from predict import memory_advice
from predict.ledger.books import Ledger, ledger_of
from predict.ledger.training_cost import TrainingCost
from predict.ledger.waterfall import COMMUNICATION, waterfall
from predict.ledger.whole_job import WholeJob
from predict.memory.estimate import STACKED_TERMS, RankTimeline
from predict.memory.peak import TERMS
from predict.reports.ledger import ledger_json
from predict.reports.memory import NO_CHANGE, VERDICT, memory_json, misfit, turning_text
from predict.reports.page.timeline_view import timeline_view
from predict.reports.palette import CLASS_COLOURS
from predict.reports.pictures.memory_plot import COLOURS, shown_ranks, spans_of_columns
from predict.reports.text import call_text, first_notes, run_text
from predict.run.training_run import settings_of
from predict.serialise import as_json, picked
from predict.step.prediction import Prediction
from regressors.features.arrays import Floats
from sampling.errors import ConfigError
from sampling.number_text import percent, plain, size
from sampling.units import MIB

Columns = tuple[tuple[str, str, str], ...]
"""Heading, key and unit (text, number, us, bytes or share) of each column."""
PARTS: Columns = (
    ("part", "part", "text"),
    ("layer", "layer", "text"),
    ("FLOPs required", "required_flops", "number"),
    ("a token", "required_flops_per_token", "number"),
    ("recomputed", "recompute_flops", "number"),
)
OPERATORS: Columns = (
    ("operator", "text", "text"),
    ("phase", "phase", "text"),
    ("count", "count", "number"),
    ("each", "each_us", "us"),
    ("a step", "total_us", "us"),
    ("over its bound", "over_bound", "number"),
    ("source", "source", "text"),
)
MESSAGES: Columns = (
    ("group", "group", "text"),
    ("kind", "kind", "text"),
    ("carries", "carries", "text"),
    ("ranks", "ranks", "number"),
    ("bytes", "size_bytes", "bytes"),
    ("count", "count", "number"),
    ("each", "each_us", "us"),
    ("exposed", "exposed_us", "us"),
    ("hidden", "hidden_us", "us"),
    ("algorithm", "algorithm", "text"),
    ("source", "source", "text"),
)
RANKS_OF_MEMORY: Columns = (("rank", "rank", "number"), *((term, term, "bytes") for term in (*TERMS, "peak")))
BUFFERS: Columns = (
    ("buffer", "name", "text"),
    ("size", "size_bytes", "bytes"),
    ("±", "width_bytes", "bytes"),
    ("source", "source", "text"),
)
RANKS_OF_SCHEDULE: Columns = (
    ("rank", "rank", "number"),
    ("busy", "busy_us", "us"),
    ("filling", "fill_us", "us"),
    ("waiting", "queue_us", "us"),
    ("draining", "drain_us", "us"),
    ("step's end", "end_us", "us"),
)
CONSTANTS: Columns = (
    ("constant", "name", "text"),
    ("value", "value", "number"),
    ("from", "low", "number"),
    ("to", "high", "number"),
    ("moves", "moves", "text"),
    ("source", "source", "text"),
)


def ledgers_view(ledger: Ledger) -> dict[str, list[dict[str, Any]]]:
    """Book → its tables. Times are µs of one GPU of the mean pipeline rank."""
    books = ledger_json(ledger)
    named = (
        {**row, "text": f"{call_text(one.call) if one.call else one.heading}{', again' if one.again else ''}"}
        for row, one in zip(books["compute"]["operators"], ledger.compute.operators, strict=True)
    )
    memory, schedule, calibration = books["memory"], books["schedule"], books["calibration"]
    sources = [{"source": name, "us": time_us} for name, time_us in calibration["by_source_us"].items() if time_us]
    return {
        "compute": [
            table_view("FLOPs that the model requires, by part", PARTS, books["compute"]["parts"]),
            table_view("Operators", OPERATORS, named),
        ],
        "memory": [
            table_view("Pipeline ranks at their peaks", RANKS_OF_MEMORY, memory["ranks"]),
            table_view("Buffers of the fullest rank", BUFFERS, memory["buffers"]),
        ],
        "communication": [table_view("Messages", MESSAGES, books["communication"]["messages"])],
        "schedule": [table_view("Pipeline ranks", RANKS_OF_SCHEDULE, schedule["ranks"])],
        "calibration": [
            table_view("Times by their source", (("source", "source", "text"), ("a step", "us", "us")), sources),
            table_view("Constants that moved the result", CONSTANTS, calibration["constants"]),
        ],
    }


def table_view(title: str, columns: Columns, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A table: its title, columns with their units, and rows of plain values."""
    return {
        "title": title,
        "columns": [[heading, unit] for heading, _, unit in columns],
        "rows": [[row[key] for _, key, _ in columns] for row in rows],
    }


HEADLINE = """
step_time_us=step_time tokens_per_second tokens_per_second_per_gpu mfu bubble_fraction sources
"""
"""Figures of a headline, under the keys of `predict one-batch --json`."""
COLUMNS = 160
"""Columns of a course; each shows its highest point, so that no peak is lost."""
MOST_KINDS = 12
"""Kinds of call in the tornado of what the step's interval rests on."""


def run_view(
    prediction: Prediction, *, cost: TrainingCost | None = None, whole: WholeJob | None = None
) -> dict[str, Any]:
    """The view of a run in a report; `cost` is the cost of a whole training, and `whole` the same with its saves and failures."""
    ledger = _ledger(prediction)
    return answer_view(prediction) | {
        "assumptions": as_json(assumptions(prediction, ledger)),
        "mfu": ledger and {name: one.mfu for name, one in ledger.mfu.items()},
        "ledgers": ledger and ledgers_view(ledger),
        "cost": as_json(cost),
        "job": as_json(whole),
    }


def answer_view(prediction: Prediction) -> dict[str, Any]:
    """The part of a view that follows each change of a plan at once: answer, waterfall, memory and timeline."""
    return {
        "name": prediction.run.name,
        "about": run_text(prediction.run),
        "prediction": notes_view(prediction)
        | picked(prediction, HEADLINE)
        | {"memory": picked(prediction.memory, VERDICT)},
        "misfit": misfit(prediction.memory),
        "fits_with": "" if prediction.feasible else _fits_with(prediction),
        "settings": as_json(settings_of(prediction.run)),
        "gpus": prediction.run.cluster.world_size,
        "waterfall": [bar_view(bar, bar.headings, CLASS_COLOURS) for bar in waterfall(prediction)],
        "memory": memory_view(prediction),
        "timeline": timeline_view(prediction),
        "unknowns": _unknowns(prediction),
    }


def _fits_with(prediction: Prediction) -> str:
    """The change that makes a run fit which does not: the cheapest change, with what it frees and costs."""
    advice = memory_advice(prediction)
    return turning_text(advice[0]) if advice else NO_CHANGE


def notes_view(prediction: Prediction) -> dict[str, list[str]]:
    """The notes above a page's headline."""
    return {"notes": first_notes(prediction.run, prediction.provenance, analytic=prediction.is_analytic)}


def bar_view(bar: object, parts: Mapping[str, float], colours: Mapping[str, str]) -> dict[str, Any]:
    """A bar of a waterfall with its bounds in µs, what it is made of, the longest first, and its colour by its name."""
    view = picked(bar, "name us=time_us low=low_us high=high_us")
    return view | {"headings": dict(sorted(parts.items(), key=lambda part: -part[1])), "colour": colours[view["name"]]}


def _ledger(prediction: Prediction) -> Ledger | None:
    """The books of a run; None for a model with layers whose FLOPs no convention counts."""
    try:
        return ledger_of(prediction)
    except ConfigError:
        return None


def communication_share(prediction: Prediction) -> float:
    """Share of the step in which communication is exposed."""
    return sum(bar.time_us for bar in waterfall(prediction) if bar.name in COMMUNICATION) / prediction.median_us


def _unknowns(prediction: Prediction) -> list[dict[str, Any]]:
    """The changes of the step, in µs, when one kind of call at a time is at its bounds; the widest first."""
    widest = sorted(prediction.kind_shifts_us.items(), key=lambda item: item[1][0] - item[1][1])
    return [
        {"name": f"{name} {phase}".replace("_", " "), "below": below, "above": above}
        for (name, phase), (below, above) in widest[:MOST_KINDS]
        if above > below
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumption:
    """Assumptions, each with its kind, its value in words and its source."""

    kind: str
    name: str
    value: str
    source: str


def assumptions(prediction: Prediction, ledger: Ledger | None) -> tuple[Assumption, ...]:
    """The assumptions of one run; with its ledger, the constants of published runs that moved it."""
    return (*_of_prediction(prediction), *_of_memory(prediction), *(_of_constants(ledger) if ledger else ()))


def _of_prediction(prediction: Prediction) -> Iterator[Assumption]:
    provenance = prediction.provenance
    for note in (*provenance.get("better_rows", ()), *provenance["notes"]):
        yield Assumption(kind="note", name="samples", value="", source=note)
    for name, width in prediction.unknowns.items():
        yield Assumption(
            kind="interval", name=name, value=f"± {percent(math.expm1(width))}", source="half-width at 90 %, by itself"
        )
    for name, share in prediction.sources.items():
        if share:
            yield Assumption(kind="times", name=name, value=percent(share), source="share of the step's work")
    for figure, source in provenance.get("sources", {}).items():
        yield Assumption(kind="device", name=figure, value=_figure(prediction, figure), source=source)
    contention = provenance.get("slow_down")
    if contention:
        yield Assumption(
            kind="overlap",
            name="slowdown during communication",
            value=percent(contention["value"]),
            source=contention["source"],
        )


def _figure(prediction: Prediction, figure: str) -> str:
    """The value of a figure of the hardware file, such as `peak_tflops` or `intra_node`; empty where it has none of its own."""
    value = getattr(prediction.run.cluster.gpu, figure, None)
    if isinstance(value, int | float | str):
        return plain(value) if isinstance(value, int | float) else value
    return ", ".join(f"{name} {plain(each)}" for name, each in value.items()) if isinstance(value, dict) else ""


def _of_memory(prediction: Prediction) -> Iterator[Assumption]:
    for buffer in prediction.memory.buffers:
        stated = f"{size(buffer.size_bytes)} ± {size(buffer.width_bytes)}"
        yield Assumption(kind="memory", name=buffer.name, value=stated, source=buffer.source)


def _of_constants(ledger: Ledger) -> Iterator[Assumption]:
    for name, one in ledger.calibration.constants.items():
        yield bounded_assumption("published runs", name, (one.value, one.low, one.high), f"{one.moves}; {one.source}")


def bounded_assumption(kind: str, name: str, of: tuple[float, float, float], source: str) -> Assumption:
    """An assumption with its value, its least and its greatest."""
    value, low, high = of
    return Assumption(kind=kind, name=name, value=f"{plain(value)} ({plain(low)} to {plain(high)})", source=source)


def memory_view(prediction: Prediction) -> dict[str, Any]:
    """Bytes of each rank at its peak, and MiB over the step of at most 16 ranks; `peak` of a term is its share of the rank's."""
    memory = prediction.memory
    shown = shown_ranks(prediction.memory_timeline, memory.worst.rank)
    return {
        **memory_json(memory),
        "terms": list(STACKED_TERMS),
        "colours": COLOURS,
        "course": [_course(each) for each in shown],
    }


def _course(each: RankTimeline) -> dict[str, Any]:
    edges = np.linspace(0.0, float(each.end_us[-1]), COLUMNS + 1)
    highest = _highest(each, edges)
    terms = {name: np.round(each.terms[name][highest] / MIB).astype(int).tolist() for name in STACKED_TERMS}
    return {"rank": each.rank, "edges_us": [round(float(edges[0])), round(float(edges[-1]))], "terms_mib": terms}


def _highest(each: RankTimeline, edges: Floats) -> list[int]:
    """The span with the highest total in each column."""
    total = each.total
    first, last = spans_of_columns(each, edges)
    firsts = np.minimum(first, len(total) - 1)
    return [int(low) + int(np.argmax(total[low:high])) for low, high in zip(firsts, last, strict=True)]
