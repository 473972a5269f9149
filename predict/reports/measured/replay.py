"""A replayed step in a terminal and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from predict.measured_runs.explain.predicted import predicted_step
from predict.measured_runs.replay.pace import CARRIED, MODELLED, REPLAYED
from predict.measured_runs.replay.replay import FOLLOWS, OTHERS_SHARE, Replay, ReplayedTerm
from predict.reports.measured.unprofiled import measured_text
from predict.reports.provenance import with_provenance
from predict.reports.text import figures_table
from predict.serialise import version_of
from sampling.number_text import duration, durations, percent, signed_percent

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

KEYS = {REPLAYED: "replayed", MODELLED: "modelled", CARRIED: "carried_over", FOLLOWS: "follows"}
"""Origin of a time → its word in the JSON."""
COLUMNS = (REPLAYED, MODELLED, CARRIED)
NOTE = (
    "replayed: the same calls in the trace; modelled: at the trace's pace, where it shows any; carried over: the host and what no call\n"
    "explains. Waiting of pipeline ranks follows from the schedule, which is simulated anew."
)


def replay_json(replay: Replay) -> dict[str, Any]:
    """The stable shape that `--json` prints."""
    step, alone = replay.step_time, _alone(replay)
    return {
        "version": version_of("what-if"),
        "step_us": {
            "traced": replay.traced_us,
            "replayed": step.median_us,
            "low": step.low_us,
            "high": step.high_us,
            "models_alone": replay.modelled.median_us,
        },
        "rest_us": {"traced": replay.rest_us, "carried_over": replay.carried_us},
        "shares": {KEYS[origin]: replay.share(origin) for origin in KEYS},
        "terms": [
            {"name": term.name, "models_alone_us": alone.get(term.name, 0.0), "replay_us": term.time_us}
            | {f"{KEYS[origin]}_us": time_us for origin, time_us in term.by_origin_us.items() if time_us}
            for term in replay.terms
        ],
        "samples": replay.modelled.provenance["samples"],
    }


def replay_text(replay: Replay) -> RenderableType:
    from rich.console import Group
    from rich.markup import escape

    step = replay.step_time
    change = step.median_us / replay.traced_us - 1
    shares = ", ".join(f"{percent(replay.share(origin))} is {origin}" for origin in COLUMNS)
    report = Group(
        f"{escape(replay.replayed.run.name)}: {duration(step.median_us)} replayed (90 %: {durations(step.low_us, step.high_us)}), "
        f"{signed_percent(change)} against the {duration(replay.traced_us)} of the traced run",
        f"  of the step {shares}; the models alone say {duration(replay.modelled.median_us)}",
        *measured_text(replay.traced),
        f"  {_rest(replay)}",
        "",
        _table(replay),
        NOTE,
    )
    modelled = replay.modelled
    return with_provenance(report, modelled.run, modelled.provenance, analytic=modelled.is_analytic)


def _rest(replay: Replay) -> str:
    """A sentence on what calls and schedule leave of the traced step."""
    less = replay.rest_us < 0
    told = f"calls and schedule take {percent(abs(replay.rest_us) / replay.traced_us)} {'more' if less else 'less'} than the traced step"
    if replay.same_run:
        return f"{told}; all of that rest is carried over, since this is the traced run"
    return f"{told}; {percent(OTHERS_SHARE)} of that rest is carried over"


def _table(replay: Replay) -> Table:
    alone, step_us = _alone(replay), replay.median_us
    table = figures_table("where the step goes", ("",), ("models alone", "replay", "of the step", *COLUMNS))
    for term in replay.terms:
        table.add_row(
            term.name,
            duration(alone.get(term.name, 0.0)),
            duration(term.time_us),
            percent(term.time_us / step_us),
            *(_part(term, origin) for origin in COLUMNS),
        )
    whole = [duration(step_us * replay.share(origin)) for origin in COLUMNS]
    table.add_row("step", duration(replay.modelled.median_us), duration(step_us), "100.0%", *whole)
    return table


def _part(term: ReplayedTerm, origin: str) -> str:
    time_us = term.by_origin_us.get(origin, 0.0)
    return duration(time_us) if time_us else ""


def _alone(replay: Replay) -> dict[str, float]:
    """µs by heading, by the models alone."""
    return dict(predicted_step(replay.modelled).headings)
