"""The answer for a run that is partly unknown, for a terminal and as JSON: one interval, the runs that it may be, and the ledger of
the middle one."""

import math
from typing import Any

from predict.plan_search.unknown_settings import LikelySteps, stated
from predict.reports.prediction import in_words, prediction_json, prediction_text
from predict.reports.printed import Renderable, Table
from predict.reports.text import fact, figures_table, first_lines_of, head, stacked, step_fact
from predict.serialise import as_json, picked, versioned
from sampling.files.faults import counted
from sampling.number_text import duration, percent, size


def likely_text(likely: LikelySteps) -> Renderable:
    """The interval of all runs first, then each of them, then the middle one as `one-batch` shows it."""
    known_as = " · ".join(map(likely.in_words, likely.unknown))
    return stacked(
        *first_lines_of(*likely.predictions),
        head(likely.middle.run.name, f"{known_as}: {counted(len(likely.predictions), 'equally likely run')}"),
        "",
        step_fact(likely.step_time),
        fact("interval", in_words(likely.unknowns)),
        fact("unknown", " · ".join(map(_width, likely.unknown, likely.widths.values()))),
        "",
        _runs(likely),
        "",
        f"one of them alone, the middle one by step time (the answer above, {duration(likely.step_time.median_us)}, is of all):",
        prediction_text(likely.middle, notes=False),
    )


def _width(path: str, width: float) -> str:
    return f"{path} moves the step by ±{percent(math.expm1(width))}"


def _runs(likely: LikelySteps) -> Table:
    table = figures_table("", (), (*likely.unknown, "step time", "memory", ""), keys=len(likely.unknown))
    for one in likely.predictions:
        values = [str(stated(one.run, path)) for path in likely.unknown]
        table.add_row(*values, duration(one.median_us), size(one.memory.point_bytes), one.memory.verdict)
    return table


def likely_json(likely: LikelySteps) -> dict[str, Any]:
    """The middle run as `one-batch --json` gives it under `middle`; the interval of all runs, its causes, and each run."""
    runs = [
        {path: stated(one.run, path) for path in likely.unknown}
        | {"step_time_us": as_json(one.step_time), "memory_verdict": one.memory.verdict}
        for one in likely.predictions
    ]
    content = picked(likely, "step_time_us=step_time unknowns_log=unknowns unknown") | {"runs": runs}
    return versioned("one-batch", content | {"middle": prediction_json(likely.middle)})
