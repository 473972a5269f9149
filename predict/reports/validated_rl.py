"""Published RL steps next to predicted ones, for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from predict.interval import Interval
from predict.reports.compared import beside, counts, refused, shares
from predict.reports.printed import Renderable, Table
from predict.reports.text import escape, stacked, table
from predict.validation.compared import Compared
from sampling.files.faults import counted
from sampling.number_text import plain, significant, whole_percent
from sampling.units import SECOND_US


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
