"""A replayed step in a terminal and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from predict.explain.predicted import predicted_step
from predict.explain.replay import Replay
from predict.report.tables import figures_table
from sampling.number_text import duration, percent, signed_percent

if TYPE_CHECKING:
    from rich.console import RenderableType

VERSION = 1


def replay_json(replay: Replay) -> dict[str, Any]:
    """The stable shape that `--json` prints."""
    return {
        "version": VERSION,
        "step_us": {
            "traced": replay.traced_us,
            "replayed": replay.replayed.median_us,
            "models_alone": replay.modelled.median_us,
        },
        "replayed_share": replay.replayed_share,
        "terms": [
            {"name": name, "models_alone_us": alone_us, "replayed_us": replayed_us}
            for name, alone_us, replayed_us in _terms(replay)
        ],
    }


def replay_text(replay: Replay) -> RenderableType:
    from rich.console import Group

    step_us = replay.replayed.median_us
    gain = step_us / replay.traced_us - 1
    table = figures_table("where the step goes", ("",), ("models alone", "replayed", "of the step"))
    for name, alone_us, replayed_us in _terms(replay):
        table.add_row(name, duration(alone_us), duration(replayed_us), percent(replayed_us / step_us))
    table.add_row("step", duration(replay.modelled.median_us), duration(step_us), "100.0%")
    return Group(
        f"{replay.replayed.run.name}: {duration(step_us)} replayed, {signed_percent(gain)} against the {duration(replay.traced_us)} that were traced",
        f"  {percent(replay.replayed_share)} of the work is replayed from the trace, the rest is modelled at its pace; "
        f"the models alone say {duration(replay.modelled.median_us)}",
        "",
        table,
    )


def _terms(replay: Replay) -> list[tuple[str, float, float]]:
    """(heading, µs by the models alone, µs replayed), the longest first."""
    alone, replayed = (predicted_step(each).headings for each in (replay.modelled, replay.replayed))
    found = [(name, alone.get(name, 0.0), replayed.get(name, 0.0)) for name in dict.fromkeys((*replayed, *alone))]
    return sorted((each for each in found if each[1] or each[2]), key=lambda each: -each[2])
