"""Figures with their bounds, money, and the cost of a whole training, as text and JSON."""

from dataclasses import asdict
from math import isinf
from typing import Any

from predict.interval import Interval
from predict.ledger.training_cost import TIMES, TrainingCost
from predict.reports.memory import headlines, misfit
from predict.reports.printed import Renderable
from predict.reports.text import escape, fact, first_lines_of, head, run_text, stacked
from predict.serialise import version_of
from predict.step.prediction import Prediction
from sampling.files.faults import counted
from sampling.number_text import DIGITS, count, duration, plain, significant, whole_percent

ASSUMED_GOODPUT = "assumed: Llama 3 405B kept above it, arXiv 2407.21783"
"""Source of the goodput that is taken where none is given."""
MOST_DECIMALS = 9
"""Decimals of an amount at most: a token costs millionths."""


def span_text(span: Interval) -> str:
    """`1,240 (1,110 to 1,400)`; the figure alone where its bounds are the same."""
    median, low, high = map(figure, (span.median, span.low, span.high))
    return median if median == low == high else f"{median} ({low} to {high})"


def money_text(cost: Interval, currency: str) -> str:
    """The cost with its currency."""
    return _with_currency(span_text(cost), currency)


def amount_text(amount: float, currency: str) -> str:
    """A single amount with its currency."""
    return _with_currency(figure(amount), currency)


def tokens_text(tokens: float) -> str:
    """300B, 2T."""
    suffix, size = next((suffix, size) for suffix, size in reversed(list(TIMES.items())) if tokens >= size)
    return f"{plain(tokens / size)}{suffix}"


def _with_currency(figures: str, currency: str) -> str:
    """Figures with a symbol before them, or a code such as EUR after them."""
    return f"{figures} {currency}" if currency.isalpha() else f"{currency}{figures}"


def figure(value: float) -> str:
    """Three significant digits, in full: 1,240, 2.50, 0.000120."""
    if isinf(value):
        return "no bound"
    return significant(float(f"{value:.{DIGITS}g}"), most_decimals=MOST_DECIMALS)


def days_text(prediction: Prediction, cost: TrainingCost, *, assumed_goodput: bool) -> Renderable:
    """Days, GPU-hours, money and energy, and what they rest on."""
    run, step = prediction.run, prediction.step_time
    known = f"{ASSUMED_GOODPUT}; set it with --goodput" if assumed_goodput else "as given"
    energy = "not known: the hardware file states no power"
    if cost.energy_mwh and prediction.power:
        energy = f"{span_text(cost.energy_mwh)} MWh of boards, {power_text(prediction)}; `predict job` adds hosts, network and cooling"
    lines = [
        *headlines([misfit(prediction.memory)]),
        *first_lines_of(prediction),
        head(run.name, run_text(run)),
        "",
        fact("tokens", f"{tokens_text(cost.tokens)} in {counted(cost.steps, 'step')} of {duration(step.median_us)}"),
        fact("days", f"[bold]{span_text(cost.days)}[/]"),
        fact("GPU-hours", span_text(cost.gpu_hours)),
        *([fact("cost", escape(money_text(cost.cost, cost.currency)))] if cost.cost else []),
        fact("energy", energy),
        fact(
            "counts",
            f"steps, and what a goodput of {whole_percent(cost.goodput)} adds ({known}); `predict job` counts failures and saves one by one "
            "instead, and differs by its own goodput",
        ),
        "  brackets hold 90 % intervals: of the step time, and for the energy of the power too",
    ]
    return stacked(*lines)


def power_text(prediction: Prediction) -> str:
    """`at 612 of 700 W on average over a step`."""
    gpu, power = prediction.run.cluster.gpu, prediction.power
    limit_w = gpu.power_limit_w or gpu.power_w
    return f"at {count(power.mean_w)} of {plain(limit_w)} W on average over a step" if power and limit_w else ""


def days_json(prediction: Prediction, cost: TrainingCost) -> dict[str, Any]:
    """All figures with their bounds; energy in MWh."""
    return {"version": version_of("days"), "run": prediction.run.name, "feasible": prediction.feasible, **asdict(cost)}
