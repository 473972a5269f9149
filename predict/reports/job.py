"""A whole job in text and JSON: its days, its parts, the time between saves, and what would shorten it."""

from collections.abc import Mapping, Sequence
from math import isinf
from typing import Any

from predict.interval import Interval
from predict.ledger.job_settings import JobSettings
from predict.ledger.training_cost import GOODPUT
from predict.ledger.whole_job import WholeJob
from predict.plan_search.offers import OfferedJob
from predict.reports.memory import headlines, likelihood, misfit
from predict.reports.money import amount_text, figure, money_text, power_text, span_text, tokens_text
from predict.reports.printed import Renderable, Table
from predict.reports.text import Columns, escape, fact, first_lines_of, head, noted, run_text, stacked, table
from predict.run.model_flops import tokens_per_step
from predict.serialise import as_json, each_picked, versioned
from predict.step.prediction import Prediction
from sampling.files.faults import counted
from sampling.number_text import count, duration, percent, plain, seconds, significant, whole_percent
from sampling.units import HOUR_US


def job_text(
    prediction: Prediction, job: WholeJob, given: JobSettings, phases: Mapping[str, Prediction] | None = None
) -> Renderable:
    """The whole job; `phases` are those beside the config's own, by the settings that they have."""
    plain, total = job.plain, sum(job.parts_hours.values())
    steps = (
        f"in {counted(plain.steps, 'step')} of {duration(prediction.step_time.median_us)}"
        if not job.phases
        else f"in {counted(plain.steps, 'step')} of {counted(len(job.phases), 'phase')}"
    )
    failing = "never" if isinf(job.hours_between_failures) else f"every {_hours(job.hours_between_failures)}"
    saving = "once, at the end" if job.saves == 1 else f"every {_hours(job.save_min / 60)} of steps"
    steps_of = {"as the config is": prediction, **(phases or {})}
    of_phases: list[Renderable] = ["", _phases(steps_of, job)] if job.phases else []
    lines: list[Renderable] = [
        *headlines([misfit(one.memory) for one in steps_of.values()]),
        *first_lines_of(prediction),
        *_fewer_than_a_batch(prediction, plain.tokens),
        head(prediction.run.name, run_text(prediction.run)),
        "",
        fact("tokens", f"{tokens_text(plain.tokens)} {steps}"),
        fact("days", f"[bold]{span_text(job.days)}[/], of which steps that are kept {span_text(plain.days)}"),
        fact("GPU-hours", span_text(job.gpu_hours)),
        *_cost(job),
        *_energy(prediction, job),
        fact(
            "counts",
            f"steps, and what follows one by one: a goodput of {percent(job.goodput.median)} ({percent(job.goodput.low)} to "
            f"{percent(job.goodput.high)}); `predict days` takes a stated one instead, {whole_percent(GOODPUT)} by default, and differs by it",
        ),
        fact("failures", f"{span_text(job.failures)}, {failing}"),
        fact(
            "saves",
            f"{saving}, {given.save}: {count(job.checkpoint_gb)} GB hold the steps up for {seconds(job.save_s)}",
        ),
        fact("best", f"a save every {_hours(job.best_save_min / 60)} (Young's rule: {_hours(job.young_min / 60)})"),
        "  in brackets: 90 % of the draws",
        *of_phases,
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


def _fewer_than_a_batch(prediction: Prediction, tokens: float) -> list[str]:
    """A note on a number of tokens that has probably lost its unit."""
    batch = tokens_per_step(prediction.run)
    if tokens >= batch:
        return []
    return noted(
        [
            f"{tokens_text(tokens)} tokens are fewer than the {tokens_text(batch)} of one batch; is a unit missing, as in 2T?"
        ]
    )


def _phases(steps_of: Mapping[str, Prediction], job: WholeJob) -> Table:
    return table(
        "phases",
        list(zip(steps_of, steps_of.values(), job.phases, strict=True)),
        {"settings": lambda one: one[0]},
        {
            "tokens": lambda one: tokens_text(one[2].tokens),
            "steps": lambda one: count(one[2].steps),
            "a step": lambda one: duration(one[1].step_time.median_us),
            "days of steps": lambda one: span_text(one[2].days),
            "fits": lambda one: one[1].memory.verdict,
        },
    )


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


def offers_text(found: Sequence[OfferedJob], deadline_days: float | None) -> Renderable:
    """The job on each offer, and which one is the cheapest. A million tokens cost as much more or less as the whole."""
    in_time: Columns[OfferedJob] = {"in time": lambda one: "yes" if one.in_time else "no"}
    return stacked(
        *first_lines_of(*(one.prediction for one in found)),
        no_offer(found[0], deadline_days) or _best_offer(found[0], deadline_days),
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
                "1M tokens": lambda one: _of_a_million(one.job),
                "fits": lambda one: one.prediction.memory.verdict,
                **(in_time if deadline_days is not None else {}),
            },
        ),
    )


def no_offer(first: OfferedJob, deadline_days: float | None) -> str:
    """Why not even the first of the offers, the best, is one to take; '' where it is."""
    if not first.prediction.feasible:
        return "no offer is expected to fit in memory: take more machines, or machines with more memory, or a plan that shards more"
    if not first.in_time and deadline_days is not None:
        return f"no offer that fits in memory {_done(deadline_days)} in 95 % of the draws: take more machines, or faster ones, or more days"
    return ""


def _done(deadline_days: float) -> str:
    return f"is done within {_days(deadline_days)}"


def _best_offer(first: OfferedJob, deadline_days: float | None) -> str:
    done = f" that {_done(deadline_days)}" if deadline_days is not None else ""
    memory = first.prediction.memory
    at_risk = f"; AT RISK: it {likelihood(memory.fits_probability)}" if memory.verdict == "AT RISK" else ""
    return f"[bold]{escape(first.offer.name)}[/] is the cheapest{done}{at_risk}"


def _days(days: float) -> str:
    return "1 day" if days == 1 else f"{plain(days)} days"


def _money(one: OfferedJob, amount: Interval | None) -> str:
    return money_text(amount, one.job.plain.currency) if amount else ""


def _of_a_million(job: WholeJob) -> str:
    cost = job.cost_per_million_tokens
    return amount_text(cost.median, job.plain.currency) if cost else ""


def offers_json(found: Sequence[OfferedJob]) -> dict[str, Any]:
    """The offers with their jobs, the best first."""
    of_offer = "offer gpus=prediction.run.cluster.world_size feasible=prediction.feasible in_time job"
    return versioned("job-offers", {"offers": each_picked(found, of_offer)})


def job_json(prediction: Prediction, job: WholeJob) -> dict[str, Any]:
    """All figures, times between events as null where there are none."""
    return versioned("job", {"run": prediction.run.name, "feasible": prediction.feasible, **as_json(job)})
