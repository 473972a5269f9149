"""A whole job in text and JSON: its days, its parts, the time between saves, and what would shorten it."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from typing import TYPE_CHECKING, Any

from predict.interval import Interval
from predict.ledger.job_settings import JobSettings
from predict.ledger.whole_job import WholeJob
from predict.plan_search.offers import OfferedJob
from predict.reports.memory import headlines, misfit
from predict.reports.money import figure, money_text, power_text, span_text, tokens_text
from predict.reports.text import escape, fact, first_lines_of, head, run_text, stacked, table
from predict.serialise import as_json, versioned
from predict.step.prediction import Prediction
from sampling.number_text import count, duration, percent, plain, seconds, significant
from sampling.units import HOUR_US

if TYPE_CHECKING:
    from rich.console import RenderableType


def job_text(prediction: Prediction, job: WholeJob, given: JobSettings) -> RenderableType:
    plain, total = job.plain, sum(job.parts_hours.values())
    steps = (
        f"in {plain.steps:,} steps of {duration(prediction.step_time.median_us)}"
        if not job.phases
        else f"in {plain.steps:,} steps of {len(job.phases)} phases"
    )
    failing = "never" if isinf(job.hours_between_failures) else f"every {_hours(job.hours_between_failures)}"
    saving = "once, at the end" if job.saves == 1 else f"every {_hours(job.save_min / 60)} of steps"
    lines: list[RenderableType] = [
        *headlines([misfit(prediction.memory)]),
        *first_lines_of(prediction),
        head(prediction.run.name, run_text(prediction.run)),
        "",
        fact("tokens", f"{tokens_text(plain.tokens)} {steps}"),
        fact("days", f"[bold]{span_text(job.days)}[/], of which steps that are kept {span_text(plain.days)}"),
        fact("GPU-hours", span_text(job.gpu_hours)),
        *_cost(job),
        *_energy(prediction, job),
        fact(
            "goodput",
            f"{percent(job.goodput.median)} ({percent(job.goodput.low)} to {percent(job.goodput.high)}), found from what follows; `predict days` takes it "
            "as stated",
        ),
        fact("failures", f"{span_text(job.failures)}, {failing}"),
        fact(
            "saves",
            f"{saving}, {given.save}: {count(job.checkpoint_gb)} GB hold the steps up for {seconds(job.save_s)}",
        ),
        fact("best", f"a save every {_hours(job.best_save_min / 60)} (Young's rule: {_hours(job.young_min / 60)})"),
        "  in brackets: 90 % of the draws",
        "",
        table(
            "where the time goes, mean of the draws",
            [(name, hours) for name, hours in job.parts_hours.items() if hours],
            {"part": lambda one: one[0]},
            {"hours": lambda one: significant(one[1]), "share": lambda one: percent(one[1] / total)},
        ),
    ]
    if job.gains:
        gains = table(
            "what would shorten it, expected hours",
            list(job.gains),
            {"measure": lambda one: one.measure},
            {"hours": lambda one: significant(one.hours), "share": lambda one: percent(one.hours / job.expected_hours)},
        )
        lines += ["", gains]
    return stacked(*lines)


def _cost(job: WholeJob) -> list[str]:
    if not job.cost or not job.cost_per_million_tokens:
        return []
    total, each = (money_text(cost, job.plain.currency) for cost in (job.cost, job.cost_per_million_tokens))
    return [fact("cost", escape(f"{total}, {each} for a million tokens"))]


def _energy(prediction: Prediction, job: WholeJob) -> list[str]:
    found = job.energy
    if found is None:
        return []
    parts = {
        "boards": found.boards_mwh,
        "hosts": found.hosts_mwh,
        "network": found.network_mwh,
        "cooling": found.cooling_mwh,
    }
    each = ", ".join(f"{name} {figure(mwh)}" for name, mwh in parts.items())
    lines = [fact("energy", f"{span_text(found.total_mwh)} MWh: {each}; boards {power_text(prediction)}")]
    if found.co2_t:
        lines.append(fact("emissions", f"{span_text(found.co2_t)} t of CO2e"))
    return lines


def _hours(hours: float) -> str:
    if isinf(hours):
        return "never"
    return duration(hours * HOUR_US)


def offers_text(found: Sequence[OfferedJob], deadline_days: float | None) -> RenderableType:
    """The job on each offer, and which one is the cheapest."""
    return stacked(
        _best_offer(found[0], deadline_days),
        "",
        table(
            "offers, in brackets: 90 % of the draws",
            list(found),
            {
                "offer": lambda one: one.offer.name,
                "GPUs": lambda one: f"{one.prediction.run.cluster.world_size} {one.prediction.run.cluster.gpu.name}",
            },
            {
                "days": lambda one: span_text(one.job.days),
                "cost": lambda one: _money(one, one.job.cost),
                "a million tokens": lambda one: _money(one, one.job.cost_per_million_tokens),
                "fits": lambda one: "yes" if one.prediction.feasible else "no",
                "in time": lambda one: "yes" if one.in_time else "no",
            },
        ),
    )


def _best_offer(first: OfferedJob, deadline_days: float | None) -> str:
    done = "" if deadline_days is None else f"is done within {plain(deadline_days)} days"
    if not first.prediction.feasible:
        return "none fits: take more machines, or machines with more memory, or a plan that shards more"
    if not first.in_time:
        return f"none that fits {done}, in 95 % of the draws: take more machines, or faster ones"
    return f"[bold]{escape(first.offer.name)}[/] is the cheapest" + (f" that {done}" if done else "")


def _money(one: OfferedJob, amount: Interval | None) -> str:
    return money_text(amount, one.job.plain.currency) if amount else ""


def offers_json(found: Sequence[OfferedJob]) -> dict[str, Any]:
    """The offers with their jobs, the best first."""
    return versioned(
        "job-offers",
        {
            "offers": [
                {
                    "offer": one.offer,
                    "gpus": one.prediction.run.cluster.world_size,
                    "feasible": one.prediction.feasible,
                    "in_time": one.in_time,
                    "job": one.job,
                }
                for one in found
            ]
        },
    )


def job_json(prediction: Prediction, job: WholeJob) -> dict[str, Any]:
    """All figures, times between events as null where there are none."""
    return versioned("job", {"run": prediction.run.name, "feasible": prediction.feasible, **as_json(job)})
