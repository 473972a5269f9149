"""A whole job in text and JSON: its days, its parts, the time between saves, and what would shorten it."""

from __future__ import annotations

from dataclasses import asdict
from math import isinf
from typing import TYPE_CHECKING, Any

from predict.ledger.whole_job import JobSettings, WholeJob
from predict.reports.memory import headlines, misfit
from predict.reports.money import money_text, span_text, tokens_text
from predict.reports.text import escape, fact, first_lines_of, head, run_text, stacked, table
from predict.serialise import version_of
from predict.step.prediction import Prediction
from sampling.number_text import duration
from sampling.units import SECOND_US

if TYPE_CHECKING:
    from rich.console import RenderableType


def job_text(prediction: Prediction, job: WholeJob, given: JobSettings) -> RenderableType:
    plain, total = job.plain, sum(job.parts_hours.values())
    failing = "never" if isinf(job.hours_between_failures) else f"every {_hours(job.hours_between_failures)}"
    saving = "once, at the end" if job.save_min >= total * 60 * 0.99 else f"every {_hours(job.save_min / 60)} of steps"
    lines: list[RenderableType] = [
        *headlines([misfit(prediction.memory)]),
        *first_lines_of(prediction),
        head(prediction.run.name, run_text(prediction.run)),
        "",
        fact(
            "tokens",
            f"{tokens_text(plain.tokens)} in {plain.steps:,} steps of {duration(prediction.step_time.median_us)}",
        ),
        fact("days", f"[bold]{span_text(job.days)}[/], of which steps that are kept {span_text(plain.days)}"),
        fact("GPU-hours", span_text(job.gpu_hours)),
        *([fact("cost", escape(money_text(job.cost, plain.currency)))] if job.cost else []),
        *([fact("energy", f"{span_text(job.energy_mwh)} MWh at the limit of each board")] if job.energy_mwh else []),
        fact("goodput", f"{job.goodput.median:.1%} ({job.goodput.low:.1%} to {job.goodput.high:.1%})"),
        fact("failures", f"{span_text(job.failures)}, {failing}"),
        fact(
            "saves", f"{saving}, {given.save}: {job.checkpoint_gb:,.0f} GB hold the steps up for {_seconds(job.save_s)}"
        ),
        fact("best", f"a save every {_hours(job.best_save_min / 60)} (Young's rule: {_hours(job.young_min / 60)})"),
        "  in brackets: 90 % of the draws",
        "",
        table(
            "where the time goes, mean of the draws",
            [(name, hours) for name, hours in job.parts_hours.items() if hours],
            {"part": lambda one: one[0]},
            {"hours": lambda one: f"{one[1]:,.1f}", "share": lambda one: f"{one[1] / total:.1%}"},
        ),
    ]
    if job.gains:
        gains = table(
            "what would shorten it, expected hours",
            list(job.gains),
            {"measure": lambda one: one.measure},
            {"hours": lambda one: f"{one.hours:,.1f}", "share": lambda one: f"{one.hours / total:.2%}"},
        )
        lines += ["", gains]
    return stacked(*lines)


def _hours(hours: float) -> str:
    """`29 min`, `3.2 h`."""
    if isinf(hours):
        return "never"
    return f"{hours:,.3g} h" if hours >= 1 else f"{hours * 60:,.3g} min"


def _seconds(seconds: float) -> str:
    return duration(seconds * SECOND_US)


def job_json(prediction: Prediction, job: WholeJob) -> dict[str, Any]:
    """All figures, times between events as null where there are none."""
    found = {name: None if isinstance(value, float) and isinf(value) else value for name, value in asdict(job).items()}
    return {"version": version_of("job"), "run": prediction.run.name, "feasible": prediction.feasible, **found}
