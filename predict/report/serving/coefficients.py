"""Fitted coefficients of a step model as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from predict.report.text import figures_table
from predict.serving.step_model import step_model
from sampling.files.faults import counted
from sampling.number_text import duration, plain

if TYPE_CHECKING:
    from rich.console import RenderableType

    from predict.serving.coefficients import Coefficients


def coefficients_text(coefficients: Coefficients) -> RenderableType:
    """Each weight with its interval, its prior and its meaning."""
    from rich.console import Group

    model = step_model(coefficients.model)
    table = figures_table("", ("term", "meaning"), ("value", "90 % interval", "prior"))
    for name, term in model.terms.items():
        weight = coefficients.weights[name]
        interval = f"{plain(weight.low)} to {plain(weight.high)}" if term.low < term.high else "not fitted"
        table.add_row(
            escape(model.title_of(name)), escape(term.meaning), plain(weight.value), interval, plain(term.prior)
        )
    runs = len(coefficients.experiments)
    waits = (
        f"{duration(coefficients.client.first_token_us)} beside the steps"
        if runs
        else "an unknown time: steps tell none"
    )
    at_bounds = [
        model.title_of(name)
        for name, term in model.terms.items()
        if term.low < term.high and coefficients.weights[name].value in (term.low or None, term.high)
    ]
    bounds = [
        f"at the bound of what is plausible: {', '.join(at_bounds)}; is CONFIG the model, GPU and engine that was measured?"
    ]
    untold = [f"no measurement tells of {', '.join(map(model.title_of, coefficients.untold))}: its prior"]
    return Group(
        f"{coefficients.model}, fitted to {counted(runs, 'experiment') if runs else 'single steps'}: {escape(coefficients.source)}",
        "",
        table,
        "",
        f"up to the first token the client waits {waits}",
        f"{'steps of an experiment' if runs else 'blocks of like steps'} left out: within {coefficients.half_width:.1%} (log half-width) for 90 %",
        *(bounds if at_bounds else []),
        *(untold if coefficients.untold else []),
    )
