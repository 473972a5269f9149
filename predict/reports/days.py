"""The cost of a whole training as lines in a terminal and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from predict.ledger.training_cost import TrainingCost
from predict.reports.memory import headlines, misfit
from predict.reports.money import ASSUMED_GOODPUT, goodput_text, money_text, span_text, tokens_text
from predict.reports.text import first_lines_of, run_text
from predict.serialise import version_of
from predict.step.prediction import Prediction
from sampling.number_text import duration

if TYPE_CHECKING:
    from rich.console import RenderableType


def days_text(prediction: Prediction, cost: TrainingCost, *, assumed_goodput: bool) -> RenderableType:
    """Days, GPU-hours, money and energy, and what they rest on."""
    from rich.console import Group
    from rich.markup import escape

    run, step = prediction.run, prediction.step_time
    power_w = run.cluster.gpu.power_w or 0.0
    known = f"{ASSUMED_GOODPUT}; set it with --goodput" if assumed_goodput else "as given"
    energy = "not known: the hardware file states no power"
    if cost.energy_mwh:
        on_top = "hosts, network and cooling come on top"
        energy = f"{span_text(cost.energy_mwh)} MWh at the {power_w:g} W limit of each board; {on_top}"
    lines = [
        *headlines([misfit(prediction.memory)]),
        *first_lines_of(prediction),
        f"[bold]{escape(run.name)}[/]  {escape(run_text(run))}",
        "",
        f"  tokens      {tokens_text(cost.tokens)} in {cost.steps:,} steps of {duration(step.median_us)}",
        f"  days        [bold]{span_text(cost.days)}[/]",
        f"  GPU-hours   {span_text(cost.gpu_hours)}",
        *([f"  cost        {escape(money_text(cost.cost, cost.currency))}"] if cost.cost else []),
        f"  energy      {energy}",
        f"  goodput     {goodput_text(cost, known)}",
        "  in brackets: the 90 % interval, from the step time alone",
    ]
    return Group(*lines)


def days_json(prediction: Prediction, cost: TrainingCost) -> dict[str, Any]:
    """All figures with their bounds; energy in MWh."""
    return {"version": version_of("days"), "run": prediction.run.name, "feasible": prediction.feasible, **asdict(cost)}
