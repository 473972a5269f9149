"""The operators of a step beside their speed of light, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from predict.bounds.step import StepBounds
from predict.reports.text import escape, fact, head, run_text, stacked, table
from predict.serialise import each_picked, picked, versioned
from sampling.number_text import duration, plain

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

OPERATOR = "name phase count predicted_us bound_us predicted_over_bound=ratio bottleneck"


def step_json(bounds: StepBounds) -> dict[str, Any]:
    """The step, its operators with their bounds, and the three models of them all."""
    return versioned(
        "speed-of-light",
        picked(bounds, "run=run.name hardware=run.cluster.gpu.name step_us=prediction.median_us predicted_us bound_us")
        | {"operators": each_picked(bounds.operators, OPERATOR), "models": bounds.models},
    )


def step_text(bounds: StepBounds) -> RenderableType:
    """The step and its bound, the operators with the worst ratio first, and the three models."""
    step_us, run = bounds.prediction.median_us, bounds.run
    most = max(bounds.operators, key=lambda each: each.headroom_us)
    peaks = f"at the device's peaks {duration(bounds.bound_us)}"
    return stacked(
        head(run.name, f"{run_text(run)}, on {run.cluster.gpu.name}"),
        "",
        fact("step time", f"[bold]{duration(step_us)}[/] predicted"),
        fact("operators", f"{duration(bounds.predicted_us)} of it on the mean pipeline rank; {peaks}"),
        fact("headroom", f"most in {escape(most.name)} {most.phase}: {duration(most.headroom_us)} above its bound"),
        "",
        _operators(bounds),
        "",
        _models(bounds),
        "",
        "A bound: no time of a device with these peaks lies below it. Tensors that fit in the cache are bounded by their products alone.",
        "Waiting, launches and communication are not in it.",
    )


def _operators(bounds: StepBounds) -> Table:
    return table(
        "operators of one step, worst first",
        bounds.operators,
        {"operator": lambda each: each.name, "phase": lambda each: each.phase},
        {
            "calls": lambda each: plain(each.count),
            "predicted": lambda each: duration(each.predicted_us),
            "bound": lambda each: duration(each.bound_us) if each.bound_us else "–",
            "÷ bound": lambda each: f"{each.ratio:.2f}" if each.ratio else "–",
            "above it": lambda each: duration(each.headroom_us) if each.bound_us else "–",
        },
        {"limited by": lambda each: each.bottleneck if each.bound_us else "fits in the cache"},
    )


def _models(bounds: StepBounds) -> Table:
    return table(
        "least time of these operators",
        (("documented", bounds.models.documented), ("intended", bounds.models.intended)),
        {"rule": lambda row: row[0]},
        {
            "unfused": lambda row: duration(row[1].unfused_us),
            "fused": lambda row: duration(row[1].fused_us),
            "fused + prefetched": lambda row: duration(row[1].fused_prefetched_us),
        },
    )
