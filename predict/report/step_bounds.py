"""The operators of a step beside their speed of light, as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from predict.bounds.step import OperatorBound, StepBounds
from predict.report.text import figures_table, run_text
from sampling.number_text import duration, plain

if TYPE_CHECKING:
    from rich.console import RenderableType

VERSION = 1


def step_json(bounds: StepBounds) -> dict[str, Any]:
    return {
        "version": VERSION,
        "run": bounds.run.name,
        "hardware": bounds.run.cluster.gpu.name,
        "step_us": bounds.prediction.median_us,
        "predicted_us": bounds.predicted_us,
        "bound_us": bounds.bound_us,
        "operators": [
            {
                "name": each.name,
                "phase": each.phase,
                "count": each.count,
                "predicted_us": each.predicted_us,
                "bound_us": each.bound_us,
                "predicted_over_bound": each.ratio,
                "bottleneck": each.bottleneck,
            }
            for each in bounds.operators
        ],
        "models": asdict(bounds.models),
    }


def step_text(bounds: StepBounds) -> RenderableType:
    """The step and its bound, the operators with the worst ratio first, and the three models."""
    from rich.console import Group
    from rich.markup import escape

    step_us, run = bounds.prediction.median_us, bounds.run
    most = max(bounds.operators, key=lambda each: each.headroom_us)
    return Group(
        escape(f"{run.name}  {run_text(run)}, on {run.cluster.gpu.name}"),
        "",
        f"  step time     {duration(step_us)} predicted",
        f"  operators     {duration(bounds.predicted_us)} of it on the mean pipeline rank; at the device's peaks "
        f"{duration(bounds.bound_us)}",
        f"  most headroom {escape(most.name)} {most.phase}: {duration(most.headroom_us)} above its bound",
        "",
        _operators(bounds),
        "",
        _models(bounds),
        "",
        "A bound: no time of a device with these peaks lies below it. Tensors that fit in the cache are bounded by their products alone.",
        "Waiting, launches and communication are not in it.",
    )


def _operators(bounds: StepBounds) -> RenderableType:
    from rich.markup import escape

    table = figures_table(
        "operators of one step, worst first",
        ["operator", "phase"],
        ["calls", "predicted", "bound", "÷ bound", "above it"],
    )
    table.add_column("limited by")
    for each in bounds.operators:
        table.add_row(
            escape(each.name),
            each.phase,
            plain(each.count),
            duration(each.predicted_us),
            duration(each.bound_us) if each.bound_us else "–",
            f"{each.ratio:.2f}" if each.ratio else "–",
            duration(each.headroom_us) if each.bound_us else "–",
            _limit(each),
        )
    return table


def _limit(each: OperatorBound) -> str:
    return each.bottleneck if each.bound_us else "fits in the cache"


def _models(bounds: StepBounds) -> RenderableType:
    table = figures_table("least time of these operators", ["rule"], ["unfused", "fused", "fused + prefetched"])
    for rule, times in (("documented", bounds.models.documented), ("intended", bounds.models.intended)):
        table.add_row(
            rule, *(duration(time_us) for time_us in (times.unfused_us, times.fused_us, times.fused_prefetched_us))
        )
    return table
